#include "tests/kernels/any_op/op_builder.h"

#include <algorithm>

#include "kernels/moe/dispatch.h"
#include "kernels/moe/router.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {

float OpBuilder::value() {
  switch (between(0, 40)) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return real(-1e-20f, 1e-20f);
    case 3:
      return real(-6, 6);
    default:
      return real(-1, 1) + real(-1, 1);
  }
}

std::vector<float> OpBuilder::contents(std::int64_t count, const std::function<float()>& draw) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) x = draw ? draw() : value();
  return numbers;
}

Tensor<StepState> OpBuilder::state() {
  const StepState state{.seed_low = static_cast<std::uint32_t>(next()),
                        .seed_high = static_cast<std::uint32_t>(between(0, 1 << 20)),
                        .step = static_cast<std::uint32_t>(between(0, 1000)),
                        .inverse_targets = div(1.0f, static_cast<float>(between(1, 500))),
                        .learning_rate = 1e-3f,
                        .bias_correction1 = real(1, 10),
                        .bias_correction2 = real(1, 20),
                        .inverse_microbatches = div(1.0f, static_cast<float>(between(1, 8)))};
  return place(1, 1, std::vector<StepState>{state});
}

std::vector<float> OpBuilder::row_contents(const DrawnPack& pack, std::int64_t cols,
                                           const std::function<float()>& draw) {
  std::vector<float> numbers = contents(pack.rows * cols, draw);
  poison_padding(pack, cols, numbers);
  return numbers;
}
Tensor<float> OpBuilder::row_numbers(const DrawnPack& pack, float low, float high) {
  return place(1, pack.rows, row_contents(pack, 1, [&] { return real(low, high); }));
}
Tensor<std::int32_t> OpBuilder::row_integers(const DrawnPack& pack, std::int64_t below) {
  // A number that could be one of a document's betrays an op that forgets to look; one out of range
  // traps it.
  const bool legal_padding = chance(2);
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < pack.rows; ++i) {
    const auto drawn = static_cast<std::int32_t>(between(0, below - 1));
    const bool trap = pack.padding(i) && !legal_padding;
    numbers.push_back(trap ? static_cast<std::int32_t>(bits(fill_.padding)) : drawn);
  }
  return place(1, pack.rows, numbers);
}

// Documents that fit, empty ones among them, in at most `capacity` slots.
PackMetadata draw_pack_metadata(OpBuilder& b) {
  const std::int64_t rows = b.chance(4)   ? b.between(1, 12)
                            : b.chance(3) ? b.between(100, 180)
                                          : b.between(20, 90);
  const std::int64_t capacity = b.between(1, 7), count = b.between(0, capacity);
  const auto gaps = static_cast<std::int32_t>(b.one_of({0, 0, 1, 3}));
  const auto align = static_cast<std::int32_t>(b.one_of({1, 1, 4, 8}));
  const auto chunk = static_cast<std::int32_t>(b.one_of({1, 3, 8, 16, 32, 64}));
  const std::int64_t chunks = (rows + chunk - 1) / chunk + capacity + b.between(0, 2);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(capacity)), numbers(lengths);
  std::int64_t left = rows;
  for (std::int64_t s = 0; s < capacity; ++s) {
    const std::int64_t most = b.chance(3) ? rows : std::max<std::int64_t>(1, rows / 3);
    std::int64_t length = b.chance(5) ? 0 : b.between(1, most);
    const std::int64_t slot = (length + gaps + align - 1) / align * align;
    if (s < count && slot > left) length = 0;
    if (s < count && length > 0) left -= slot;
    lengths[static_cast<std::size_t>(s)] =
        static_cast<std::int32_t>(length);  // Nonsense at and after count is ignored.
    numbers[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(b.between(0, 100000));
  }
  return {.lengths = b.place(1, capacity, lengths),
          .numbers = b.place(1, capacity, numbers),
          .count = b.place(1, 1, std::vector<std::int32_t>{static_cast<std::int32_t>(count)}),
          .cu_seqlens = b.out<std::int32_t>(1, capacity + 1),
          .cu_seqlens_padded = b.out<std::int32_t>(1, capacity + 1),
          .row_document = b.out<std::int32_t>(1, rows),
          .row_position = b.out<std::int32_t>(1, rows),
          .row_number = b.out<std::int32_t>(1, rows),
          .chunk_document = b.out<std::int32_t>(1, chunks),
          .chunk_start = b.out<std::int32_t>(1, chunks),
          .chunk_rows = b.out<std::int32_t>(1, chunks),
          .gaps = gaps,
          .align = align,
          .chunk = chunk,
          .extend_last = b.chance(2)};
}

DrawnPack::DrawnPack(OpBuilder& b) : memory_(std::make_shared<HostOpMemory>()) {
  OpBuilder local(b.next(), *memory_, {});
  const PackMetadata made = draw_pack_metadata(local);
  run(HostQueue{}, made);
  rows = made.row_document.cols;
  chunk = made.chunk;
  const auto view = [](Out<std::int32_t> x) {
    return Tensor<std::int32_t>{x.data, x.rows, x.cols, x.pitch};
  };
  const auto copy = [&](Out<std::int32_t> x) {
    return b.place(1, x.cols, std::vector<std::int32_t>(x.data, x.data + x.cols));
  };
  host = {view(made.cu_seqlens), view(made.cu_seqlens_padded), view(made.row_document)};
  cu_seqlens = copy(made.cu_seqlens);
  cu_seqlens_padded = copy(made.cu_seqlens_padded);
  row_document = copy(made.row_document);
  row_position = copy(made.row_position);
  row_number = copy(made.row_number);
  chunk_document = copy(made.chunk_document);
  chunk_start = copy(made.chunk_start);
  chunk_rows = copy(made.chunk_rows);
}

DrawnRouting::DrawnRouting(OpBuilder& b) : pack(b), memory_(std::make_shared<HostOpMemory>()) {
  OpBuilder local(b.next(), *memory_, {});
  experts = b.chance(4) ? b.between(2, 140) : b.between(2, 9);
  slots = b.between(1, std::min<std::int64_t>(experts, b.chance(5) ? 16 : 4));
  width = b.between(1, 24);
  kind = b.chance(2) ? RouterScore::softmax : RouterScore::sigmoid;
  combine = {.renormalise = !b.chance(3), .scaling = b.chance(3) ? 2.5f : 1.0f};
  const std::int64_t tokens = pack.rows, pairs = tokens * slots;
  // Coarse inputs make ties.
  const bool coarse = b.chance(3);
  const auto draw = [&] {
    return coarse ? static_cast<float>(b.between(-1, 1)) : 0.5f * b.value();
  };
  const RouterForward<float> router{
      .x = local.values(tokens, width, draw),
      .wr = local.values(experts, width, draw),
      .bias = b.chance(2) ? local.values(1, experts, draw) : Tensor<float>{},
      .row_document = pack.host.row_document,
      .logits = local.out<float>(tokens, experts),
      .scores = local.out<float>(tokens, experts),
      .lse = local.out<float>(1, tokens),
      .experts = local.out<std::int32_t>(tokens, slots),
      .weights = local.out<float>(tokens, slots),
      .kind = kind,
      .combine = combine};
  run(HostQueue{}, router);
  const ExpertCounts count{.experts = router.experts,
                           .counts = local.out<std::int32_t>(1, experts)};
  run(HostQueue{}, count);
  // Around the fullest expert, so that some pairs are dropped.
  const std::int64_t most = *std::max_element(count.counts.data, count.counts.data + experts);
  const std::int64_t least = b.one_of({1, 2, most / 2, most - 1, most - 1, most, most + 1, tokens});
  capacity = b.chance(4) ? 0 : static_cast<std::int32_t>(std::max<std::int64_t>(1, least));
  padded = capacity > 0 && b.chance(2);
  buffer_rows = capacity == 0 ? pairs
                : padded      ? experts * capacity
                              : std::min(pairs, experts * capacity);
  const ExpertLayout layout{.experts = router.experts,
                            .counts = count.counts,
                            .start = local.out<std::int32_t>(1, experts),
                            .rows = local.out<std::int32_t>(1, experts),
                            .pair_row = local.out<std::int32_t>(tokens, slots),
                            .row_pair = local.out<std::int32_t>(1, buffer_rows),
                            .capacity = capacity,
                            .padded = padded};
  run(HostQueue{}, layout);
  const auto keep = [&b]<class T>(const Out<T>& x, Tensor<T>& host_view, Tensor<T>& copy) {
    host_view = {x.data, x.rows, x.cols, x.pitch};
    std::vector<T> values;
    for (std::int64_t i = 0; i < x.rows; ++i)
      values.insert(values.end(), x.row(i), x.row(i) + x.cols);
    copy = b.place(x.rows, x.cols, values);
  };
  keep(router.logits, host.logits, logits);
  keep(router.scores, host.scores, scores);
  keep(router.lse, host.lse, lse);
  keep(router.weights, host.weights, weights);
  keep(router.experts, host.selected, selected);
  keep(count.counts, host.counts, counts);
  keep(layout.start, host.start, start);
  keep(layout.rows, host.rows, rows);
  keep(layout.pair_row, host.pair_row, pair_row);
  keep(layout.row_pair, host.row_pair, row_pair);
}

DrawnTargets::DrawnTargets(OpBuilder& b) : rows(b.between(1, 40)) {
  vocabulary = b.chance(4) ? b.between(1000, 3000) : b.between(2, 300);
  for (std::int64_t i = 0; i < rows; ++i) {
    const bool masked = b.chance(4);
    targets.push_back(masked ? -1 : static_cast<std::int32_t>(b.between(0, vocabulary - 1)));
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const float x = 3 * b.value();
      logits.push_back(masked ? b.padding() : x);
    }
  }
}

}  // namespace lockstep
