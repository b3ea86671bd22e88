#include "kernels/moe/dispatch.h"

#include <algorithm>
#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/core/require.h"
#include "kernels/host/chain.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"
#include "kernels/moe/exchange.h"

namespace lockstep {

void run(HostQueue, const ExpertLayout& op) {
  const std::int64_t experts = op.counts.cols, slots = op.experts.cols, tokens = op.experts.rows;
  const std::int32_t capacity =
      op.capacity - faulty("expert-layout-capacity-less-one", 0, op.capacity > 1 ? 1 : 0);
  std::int32_t next = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    op.start.data[e] = op.padded ? static_cast<std::int32_t>(e) * op.capacity : next;
    op.rows.data[e] = capacity > 0 ? std::min(op.counts.data[e], capacity) : op.counts.data[e];
    next += op.rows.data[e];
  }
  require(op.padded || next <= op.row_pair.cols, "the buffer holds what is kept");
  std::fill_n(op.row_pair.data, op.row_pair.cols, -1);
  std::vector<std::int32_t> rank(experts);
  const bool slot_first = faulty("expert-layout-ranks-by-slot-first", false, true);
  for (std::int64_t place = 0; place < tokens * slots; ++place) {
    const std::int64_t i = slot_first ? place % tokens : place / slots;
    const std::int64_t s = slot_first ? place / tokens : place % slots;
    const std::int32_t e = op.experts.row(i)[s];
    std::int32_t& to = op.pair_row.row(i)[s];
    to = -1;
    if (e < 0) continue;
    const std::int32_t r = at(rank, e)++;
    if (r >= op.rows.data[e]) continue;
    to = op.start.data[e] + r;
    op.row_pair.data[to] = static_cast<std::int32_t>(i * slots + s);
  }
}

template <class T>
void run(HostQueue, const Dispatch<T>& op) {
  for (std::int64_t r = 0; r < op.buffer.rows; ++r) {
    const std::int32_t pair = op.row_pair.data[r];
    if (pair < 0) {
      store_zero(op.buffer.cols, op.buffer.row(r));
    } else {
      const std::int64_t i = pair / op.top_k;
      const std::int64_t source = faulty("dispatch-takes-the-next-row", i, (i + 1) % op.x.rows);
      std::copy_n(op.x.row(source), op.x.cols, op.buffer.row(r));
    }
  }
  raise_amax(op, op.buffer, op.row_pair);
}

template <class T>
void run(HostQueue, const Combine<T>& op) {
  const std::int64_t d = op.out.cols;
  const bool from_the_last = faulty("combine-adds-slots-backwards", false, true);
  const In<T> shared = faulty("combine-forgets-the-shared-expert", op.shared, {});
  std::vector<float> sum(d);
  for (std::int64_t i = 0; i < op.out.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(d, op.out.row(i));
      continue;
    }
    set_zero(d, sum.data());
    for (std::int64_t step = 0; step < op.weights.cols; ++step) {
      const std::int64_t s = from_the_last ? op.weights.cols - 1 - step : step;
      const std::int32_t r = op.pair_row.row(i)[s];
      if (r < 0) continue;
      const float weight = op.weights.row(i)[s];
      const T* y = op.y.row(r);
      for (std::int64_t e = 0; e < d; ++e) {
        at(sum, e) = fma(weight, load(y[e]), at(sum, e));
      }
    }
    add_zero(d, sum.data());
    for (std::int64_t e = 0; shared && e < d; ++e) {
      at(sum, e) = add(at(sum, e), load(shared.row(i)[e]));
    }
    store_row(d, sum.data(), op.out.row(i));
  }
}

template <class T>
void run(HostQueue, const CombineBackward<T>& op) {
  const std::int64_t d = op.dout.cols, slots = op.weights.cols;
  for (std::int64_t r = 0; r < op.dy.rows; ++r) {
    const std::int32_t pair = op.row_pair.data[r];
    if (pair < 0) {
      store_zero(d, op.dy.row(r));
      continue;
    }
    const T* dout = op.dout.row(pair / slots);
    const float own = op.weights.row(pair / slots)[pair % slots];
    const float weight = faulty("combine-backward-forgets-the-weight", own, 1.0f);
    for (std::int64_t e = 0; e < d; ++e) op.dy.row(r)[e] = st<T>(mul(weight, load(dout[e])));
  }
  raise_amax(op, op.dy, op.row_pair);
  for (std::int64_t i = 0; i < op.dout.rows; ++i) {
    for (std::int64_t s = 0; s < slots; ++s) {
      float& dweight = op.dweights.row(i)[s];
      dweight = 0.0f;
      const std::int32_t own = op.pair_row.row(i)[s], first = op.pair_row.row(i)[0];
      const std::int32_t place =
          faulty("combine-backward-keeps-dropped-pairs", own, own < 0 ? first : own);
      const std::int32_t r = op.row_document.data[i] < 0 ? -1 : place;
      if (r < 0) continue;
      const T* dout = op.dout.row(i);
      const T* y = op.y.row(r);
      dweight =
          r128(d, [&](std::int64_t e, float acc) { return fma(load(dout[e]), load(y[e]), acc); });
    }
  }
}

template <class T>
void run(HostQueue, const DispatchBackward<T>& op) {
  const std::int64_t d = op.dx.cols, experts = op.wr.rows;
  const bool forgets_router = faulty("dispatch-backward-forgets-the-router", false, true);
  const bool router_first = faulty("dispatch-backward-adds-the-router-first", false, true);
  std::vector<float> sum(d), router(sum);
  const auto add_row = [&](const auto& get) {
    for (std::int64_t e = 0; e < d; ++e) at(sum, e) = add(at(sum, e), get(e));
  };
  for (std::int64_t i = 0; i < op.dx.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(d, op.dx.row(i));
      continue;
    }
    set_zero(d, sum.data());
    dot_row(d, experts, op.dlogits.row(i), 1, op.wr.data, op.wr.pitch, router.data());
    const auto router_part = [&](std::int64_t e) { return at(router, e); };
    if (router_first) add_row(router_part);
    for (std::int64_t s = 0; s < op.pair_row.cols; ++s) {
      const std::int32_t r = op.pair_row.row(i)[s];
      if (r >= 0) add_row([&](std::int64_t e) { return load(op.dbuffer.row(r)[e]); });
    }
    if (op.dshared) add_row([&](std::int64_t e) { return load(op.dshared.row(i)[e]); });
    if (!forgets_router && !router_first) add_row(router_part);
    add_zero(d, sum.data());
    store_row(d, sum.data(), op.dx.row(i));
  }
}

template void run(HostQueue, const Dispatch<float>&);
template void run(HostQueue, const Dispatch<bf16>&);
template void run(HostQueue, const Combine<float>&);
template void run(HostQueue, const Combine<bf16>&);
template void run(HostQueue, const CombineBackward<float>&);
template void run(HostQueue, const CombineBackward<bf16>&);
template void run(HostQueue, const DispatchBackward<float>&);
template void run(HostQueue, const DispatchBackward<bf16>&);

// ---- Between ranks ------------------------------------------------------------------------------

// Rows beyond what is sent, or beyond a buffer, which only a wrong size leaves, have no place.
void run(HostQueue, const ExchangeLayout& op) {
  const std::int64_t ranks = op.rows_of_ranks.rows, own = op.own_start.cols;
  for (const Out<std::int32_t>& map : {op.sent, op.back, op.taken, op.answered})
    std::fill_n(map.data, map.cols, -1);
  const auto enter = [](const Out<std::int32_t>& map, std::int64_t from, std::int64_t to,
                        std::int64_t end) {
    if (from < map.cols && to < end) map.data[from] = static_cast<std::int32_t>(to);
  };
  for (std::int64_t peer = 0; peer < ranks; ++peer) {
    for (std::int64_t local = 0; local < own; ++local) {
      const ExchangedRows to = rows_to(op, peer, local), from = rows_from(op, peer, local);
      const std::int64_t end = op.sent.cols;
      for (std::int64_t k = 0; k < to.rows; ++k) {
        enter(op.sent, to.place + k, to.row + k, op.back.cols);
        const std::int64_t last = to.rows - 1 - k;
        const std::int64_t place = faulty("expert-rows-come-back-in-another-order", k, last);
        enter(op.back, to.row + k, to.place + place, end);
      }
      const std::int64_t next = rows_from(op, (peer + 1) % ranks, local).row;
      const std::int64_t answers =
          faulty("expert-rows-answered-to-another-source", std::int64_t{from.row}, next);
      for (std::int64_t k = 0; k < from.rows; ++k) {
        enter(op.taken, from.row + k, from.place + k, end);
        enter(op.answered, from.place + k, answers + k, op.taken.cols);
      }
      const std::int64_t list = op.by_expert ? local : peer, at = op.by_expert ? peer : local;
      op.segment_start.row(list)[at] = from.row;
      op.segment_rows.row(list)[at] = from.rows;
    }
  }
  for (std::int64_t local = 0; local < own; ++local) {
    const ExchangedRows last = rows_from(op, ranks - 1, local);
    const std::int32_t start = rows_from(op, 0, local).row;
    op.own_start.data[local] = start;
    op.own_rows.data[local] = last.row - start + (op.capacity == 0 ? last.rows : op.capacity);
  }
}

template <class T>
void run(HostQueue, const MoveRows<T>& op) {
  for (std::int64_t r = 0; r < op.to.rows; ++r) {
    const std::int32_t place = op.place.data[r];
    if (place < 0) {
      store_zero(op.to.cols, op.to.row(r));
    } else {
      std::copy_n(op.from.row(place), op.to.cols, op.to.row(r));
    }
  }
}
template void run(HostQueue, const MoveRows<float>&);
template void run(HostQueue, const MoveRows<bf16>&);

}  // namespace lockstep
