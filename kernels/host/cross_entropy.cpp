#include "kernels/ops/cross_entropy.h"

#include <limits>

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/core/require.h"
#include "kernels/host/rows.h"

namespace lockstep {

template <class T>
void run(HostQueue, const CrossEntropyForward<T>& op) {
  const std::int64_t vocabulary = op.logits.cols;
  const std::int64_t in_tree = faulty("cross-entropy-sums-sequentially", vocabulary, 0);
  for (std::int64_t i = 0; i < op.logits.rows; ++i) {
    const std::int32_t target = op.targets.data[i];
    if (target < 0) {
      op.loss.data[i] = op.maximum.data[i] = op.sum.data[i] = 0.0f;
      continue;
    }
    require(target < vocabulary, "a target is an index of the vocabulary");
    const T* x = op.logits.row(i);
    const float m = maximum(vocabulary, [x](std::int64_t v) { return load(x[v]); });
    const auto term = [x, m](std::int64_t v, float acc) {
      return add(acc, expn(sub(load(x[v]), m)));
    };
    float s = r1024(in_tree, term);
    for (std::int64_t v = in_tree; v < vocabulary; ++v) s = term(v, s);
    const auto read =
        faulty<std::int64_t>("cross-entropy-reads-wrong-target", target, (target + 1) % vocabulary);
    op.loss.data[i] = sub(add(m, log(s)), load(x[read]));
    op.maximum.data[i] = m;
    op.sum.data[i] = s;
  }
}

// A smaller term counts as zero.
static float smallest_term() {
  return faulty("cross-entropy-gradient-flushes-small-terms", 0.0f, 0x1p-20f);
}

template <class T>
void run(HostQueue, const CrossEntropyBackward<T>& op) {
  const std::int64_t vocabulary = op.logits.cols;
  const float scale =
      faulty("cross-entropy-gradient-unscaled", op.state.data->inverse_targets, 1.0f);
  const float smallest = smallest_term();
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
  const std::int32_t first_target = faulty("cross-entropy-gradient-keeps-masked-rows", 0, kLowest);
  for (std::int64_t i = 0; i < op.logits.rows; ++i) {
    const std::int32_t target = op.targets.data[i];
    T* dx = op.dlogits.row(i);
    if (target < first_target) {
      store_zero(vocabulary, dx);
      continue;
    }
    require(target < vocabulary, "a target is an index of the vocabulary");
    const T* x = op.logits.row(i);
    const float m = op.maximum.data[i];
    const float inverse = div(1.0f, op.sum.data[i]);
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const float e = expn(sub(load(x[v]), m));
      const float p = mul(e < smallest ? 0.0f : e, inverse);
      dx[v] = st<T>(mul(sub(p, v == target ? 1.0f : 0.0f), scale));
    }
  }
}

void run(HostQueue, const MicrobatchLoss& op) {
  float sum = 0.0f;
  column_sums(op.loss.cols, 1, &sum,
              [&](std::int64_t i, float* p) { *p = add(*p, op.loss.data[i]); });
  const float of_rows = div(sum, static_cast<float>(op.loss.cols));
  *op.total.data =
      faulty("microbatch-loss-is-mean-of-rows", mul(sum, op.state.data->inverse_targets), of_rows);
}

template void run(HostQueue, const CrossEntropyForward<float>&);
template void run(HostQueue, const CrossEntropyForward<bf16>&);
template void run(HostQueue, const CrossEntropyBackward<float>&);
template void run(HostQueue, const CrossEntropyBackward<bf16>&);

}  // namespace lockstep
