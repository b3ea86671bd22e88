// Small valid instances of the ops of a mixture of experts.
#pragma once

#include "kernels/moe/dispatch.h"
#include "kernels/moe/exchange.h"
#include "kernels/moe/expert_product.h"
#include "kernels/moe/expert_state.h"
#include "kernels/moe/router.h"
#include "tests/kernels/any_op/op_builder.h"

namespace lockstep {

template <class T>
inline void draw(OpBuilder& b, RouterForward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>(), experts = b.chance(4) ? b.between(2, 200) : b.between(2, 20);
  const auto slots = b.between(1, std::min<std::int64_t>(experts, b.chance(4) ? 16 : 3));
  const bool coarse = b.chance(3);  // Equal scores.
  const auto draw = [&] {
    return coarse ? static_cast<float>(b.between(-1, 1)) : 0.3f * b.value();
  };
  op = {.x = b.row_values<T>(pack, d, draw),
        .wr = b.values(experts, d, draw),
        .bias = b.chance(2) ? b.values(1, experts) : Tensor<float>{},
        .row_document = pack.row_document,
        .logits = b.out<float>(pack.rows, experts),
        .scores = b.out<float>(pack.rows, experts),
        .lse = b.out<float>(1, pack.rows),
        .experts = b.out<std::int32_t>(pack.rows, slots),
        .weights = b.out<float>(pack.rows, slots),
        .kind = b.chance(2) ? RouterScore::softmax : RouterScore::sigmoid,
        .combine = {.renormalise = !b.chance(3), .scaling = b.chance(3) ? 2.5f : 1.0f}};
}
inline void draw(OpBuilder& b, ExpertCounts& op) {
  const DrawnRouting drawn(b);
  op = {.experts = drawn.selected, .counts = b.out<std::int32_t>(1, drawn.experts)};
}
inline void draw(OpBuilder& b, RouterLoss& op) {
  const DrawnRouting drawn(b);
  op = {.scores = drawn.scores,
        .lse = drawn.lse,
        .counts = drawn.counts,
        .row_document = drawn.pack.row_document,
        .state = b.state(),
        .sums = b.out<float>(1, drawn.experts + 1),
        .slopes = b.out<float>(1, drawn.experts + 1),
        .losses = b.out<float>(1, 2),
        .aux = b.chance(3) ? 0.0f : 0.01f,
        .z = b.chance(3) ? 0.0f : 0.1f,
        .top_k = static_cast<std::int32_t>(drawn.slots)};
}
inline void draw(OpBuilder& b, RouterBackward& op) {
  const DrawnRouting drawn(b);
  const bool aux = b.chance(2), z = b.chance(2);
  op = {.logits = drawn.logits,
        .scores = drawn.scores,
        .lse = drawn.lse,
        .experts = drawn.selected,
        .dweights = b.row_values(drawn.pack, drawn.slots),
        .slopes = aux || z ? b.values(1, drawn.experts + 1) : Tensor<float>{},
        .row_document = drawn.pack.row_document,
        .dlogits = b.out<float>(drawn.pack.rows, drawn.experts),
        .kind = drawn.kind,
        .combine = drawn.combine,
        .aux = aux,
        .z = z};
}
template <class T>
inline void draw(OpBuilder& b, RouterWeightGradient<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>(), experts = b.between(1, 20);
  op = {.dlogits = b.row_values(pack, experts),
        .x = b.row_values<T>(pack, d),
        .row_document = pack.row_document,
        .dwr = b.out<float>(experts, d)};
}
inline void draw(OpBuilder& b, ExpertLayout& op) {
  const DrawnRouting drawn(b);
  op = {.experts = drawn.selected,
        .counts = drawn.counts,
        .start = b.out<std::int32_t>(1, drawn.experts),
        .rows = b.out<std::int32_t>(1, drawn.experts),
        .pair_row = b.out<std::int32_t>(drawn.pack.rows, drawn.slots),
        .row_pair = b.out<std::int32_t>(1, drawn.buffer_rows),
        .capacity = drawn.capacity,
        .padded = drawn.padded};
}
template <class T>
inline void draw(OpBuilder& b, Dispatch<T>& op) {
  const DrawnRouting drawn(b);
  const auto d = b.width<T>();
  op = {.x = b.row_values<T>(drawn.pack, d),
        .row_pair = drawn.row_pair,
        .buffer = b.out<T>(drawn.buffer_rows, d),
        .top_k = static_cast<std::int32_t>(drawn.slots),
        .amax = amax_of_a_producer<T>(b, drawn.experts)};
  if (op.amax) op.start = drawn.start, op.rows = drawn.rows;
}
template <class T>
inline void draw(OpBuilder& b, Combine<T>& op) {
  const DrawnRouting drawn(b);
  const auto d = b.width<T>();
  op = {.y = drawn.buffer_values<T>(b, d),
        .weights = drawn.weights,
        .pair_row = drawn.pair_row,
        .shared = b.chance(2) ? b.row_values<T>(drawn.pack, d) : Tensor<T>{},
        .row_document = drawn.pack.row_document,
        .out = b.out<T>(drawn.pack.rows, d)};
}
template <class T>
inline void draw(OpBuilder& b, CombineBackward<T>& op) {
  const DrawnRouting drawn(b);
  const auto d = b.width<T>();
  op = {.dout = b.row_values<T>(drawn.pack, d),
        .y = drawn.buffer_values<T>(b, d),
        .weights = drawn.weights,
        .pair_row = drawn.pair_row,
        .row_pair = drawn.row_pair,
        .row_document = drawn.pack.row_document,
        .dy = b.out<T>(drawn.buffer_rows, d),
        .dweights = b.out<float>(drawn.pack.rows, drawn.slots),
        .amax = amax_of_a_producer<T>(b, drawn.experts)};
  if (op.amax) op.start = drawn.start, op.rows = drawn.rows;
}
template <class T>
inline void draw(OpBuilder& b, DispatchBackward<T>& op) {
  const DrawnRouting drawn(b);
  const auto d = b.width<T>();
  op = {.dbuffer = drawn.buffer_values<T>(b, d),
        .pair_row = drawn.pair_row,
        .dshared = b.chance(2) ? b.row_values<T>(drawn.pack, d) : Tensor<T>{},
        .dlogits = b.row_values(drawn.pack, drawn.experts),
        .wr = b.values(drawn.experts, d),
        .row_document = drawn.pack.row_document,
        .dx = b.out<T>(drawn.pack.rows, d)};
}
template <class T>
std::int64_t expert_width(OpBuilder& b) {
  return std::is_same_v<T, bf16> ? 8 * b.between(1, 5) : b.between(1, 40);
}
template <class T>
inline void draw(OpBuilder& b, ExpertForward<T>& op) {
  const DrawnRouting drawn(b);
  const auto inputs = expert_width<T>(b), outputs = expert_width<T>(b);
  op = {.x = drawn.buffer_values<T>(b, inputs),
        .w = b.values<T>(drawn.experts * outputs, inputs),
        .start = drawn.start,
        .rows = drawn.rows,
        .row_pair = drawn.row_pair,
        .y = b.out<T>(drawn.buffer_rows, outputs)};
}
template <class T>
inline void draw(OpBuilder& b, ExpertInputGradient<T>& op) {
  const DrawnRouting drawn(b);
  const auto inputs = expert_width<T>(b), outputs = expert_width<T>(b);
  op = {.dy = drawn.buffer_values<T>(b, outputs),
        .w = b.values<T>(drawn.experts * outputs, inputs),
        .start = drawn.start,
        .rows = drawn.rows,
        .row_pair = drawn.row_pair,
        .dx = b.out<T>(drawn.buffer_rows, inputs)};
}
template <class T>
inline void draw(OpBuilder& b, ExpertWeightGradient<T>& op) {
  const DrawnRouting drawn(b);
  const auto inputs = expert_width<T>(b), outputs = expert_width<T>(b);
  op = {.dy = drawn.buffer_values<T>(b, outputs),
        .x = drawn.buffer_values<T>(b, inputs),
        .start = drawn.start,
        .rows = drawn.rows,
        .dw = b.out<float>(drawn.experts * outputs, inputs)};
}
inline void draw(OpBuilder& b, ExchangeLayout& op) {
  const auto ranks = b.between(1, 4), own = b.between(1, 5), experts = ranks * own;
  const bool padded = b.chance(2);
  const auto capacity = b.between(1, 6);
  const auto rank = b.between(0, ranks - 1);
  std::vector<std::int32_t> rows(ranks * experts), start;
  for (std::int32_t& count : rows)
    count = static_cast<std::int32_t>(b.between(0, padded ? capacity : b.one_of({0, 1, 40})));
  std::int64_t behind = 0, most = 1, taken = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    start.push_back(static_cast<std::int32_t>(padded ? e * capacity : behind));
    behind += rows[rank * experts + e];
  }
  for (std::int64_t source = 0; source < ranks; ++source) {
    for (std::int64_t owner = 0; owner < ranks; ++owner) {
      std::int64_t between = 0;
      for (std::int64_t l = 0; l < own; ++l) between += rows[source * experts + owner * own + l];
      most = std::max(most, between);
      if (owner == rank) taken += between;
    }
  }
  const std::int64_t places = ranks * (most + b.between(0, 3));
  const bool by_expert = b.chance(2);
  const std::int64_t lists = by_expert ? own : ranks;
  op = {.rows_of_ranks = b.place(ranks, experts, rows),
        .start = b.place(1, experts, start),
        .sent = b.out<std::int32_t>(1, places),
        .back = b.out<std::int32_t>(1, padded ? experts * capacity : behind + b.between(1, 3)),
        .taken = b.out<std::int32_t>(1, padded ? experts * capacity : taken + b.between(1, 3)),
        .answered = b.out<std::int32_t>(1, places),
        .own_start = b.out<std::int32_t>(1, own),
        .own_rows = b.out<std::int32_t>(1, own),
        .segment_start = b.out<std::int32_t>(lists, experts / lists),
        .segment_rows = b.out<std::int32_t>(lists, experts / lists),
        .rank = static_cast<std::int32_t>(rank),
        .capacity = padded ? static_cast<std::int32_t>(capacity) : 0,
        .by_expert = by_expert};
}
template <class T>
inline void draw(OpBuilder& b, MoveRows<T>& op) {
  const auto from = b.between(1, 20), to = b.between(1, 20), d = b.width<T>();
  std::vector<std::int32_t> place;
  for (std::int64_t r = 0; r < to; ++r)
    place.push_back(static_cast<std::int32_t>(b.between(-1, from - 1)));
  op = {.from = b.values<T>(from, d), .place = b.place(1, to, place), .to = b.out<T>(to, d)};
}
inline void draw(OpBuilder& b, CountPairs& op) {
  const DrawnRouting drawn(b);
  const std::int64_t least = b.one_of({0, 0, 1 << 24, (1 << 30)});
  const auto before = [&]<class N>(N) {
    std::vector<N> numbers;
    for (std::int64_t e = 0; e < drawn.experts; ++e)
      numbers.push_back(static_cast<N>(least + b.between(0, 1000)));
    return b.place(1, drawn.experts, numbers);
  };
  op = {.counts = drawn.counts,
        .rows = drawn.rows,
        .step = before(std::int32_t{}),
        .total = before(std::int64_t{}),
        .kept = before(std::int64_t{})};
}
inline void draw(OpBuilder& b, UpdateExpertBias& op) {
  const auto experts = b.between(2, 40), ranks = b.between(1, 3);
  // Sums of large ones pass 2^24, above which no float holds each integer, and 2^31.
  const std::int64_t least = b.one_of({0, 0, 1 << 24, 1 << 30});
  std::vector<std::int32_t> counts;
  for (std::int64_t e = 0; e < ranks * experts; ++e)
    counts.push_back(static_cast<std::int32_t>(least + b.between(0, 3)));
  op = {.step = b.place(ranks, experts, counts), .bias = b.values(1, experts), .rate = 0.001f};
}

}  // namespace lockstep
