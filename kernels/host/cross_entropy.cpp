#include "kernels/ops/cross_entropy.h"

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/core/require.h"
#include "kernels/host/rows.h"

namespace lockstep {

template <class T>
void run(HostQueue, const CrossEntropyForward<T>& op) {
  const std::int64_t vocabulary = op.logits.cols;
  const bool sequential = fault("cross-entropy-sums-sequentially");
  const bool next_target = fault("cross-entropy-reads-wrong-target");
  for (std::int64_t i = 0; i < op.logits.rows; ++i) {
    const std::int32_t target = op.targets.data[i];
    if (target < 0) {
      op.loss.data[i] = op.maximum.data[i] = op.sum.data[i] = 0.0f;
      continue;
    }
    require(target < vocabulary, "a target is an index of the vocabulary");
    const T* x = op.logits.row(i);
    const float m = maximum(vocabulary, [x](std::int64_t v) { return load(x[v]); });
    float s = r1024(vocabulary, [x, m](std::int64_t v, float acc) { return add(acc, expn(sub(load(x[v]), m))); });
    if (sequential) {
      s = 0.0f;
      for (std::int64_t v = 0; v < vocabulary; ++v) s = add(s, expn(sub(load(x[v]), m)));
    }
    const std::int64_t read = next_target ? (target + 1) % vocabulary : target;
    op.loss.data[i] = sub(add(m, log(s)), load(x[read]));
    op.maximum.data[i] = m;
    op.sum.data[i] = s;
  }
}

template <class T>
void run(HostQueue, const CrossEntropyBackward<T>& op) {
  const std::int64_t vocabulary = op.logits.cols;
  const float scale = fault("cross-entropy-gradient-unscaled") ? 1.0f : op.state.data->inverse_targets;
  const bool keeps_masked = fault("cross-entropy-gradient-keeps-masked-rows");
  const bool flushes = fault("cross-entropy-gradient-flushes-small-terms");
  for (std::int64_t i = 0; i < op.logits.rows; ++i) {
    const std::int32_t target = op.targets.data[i];
    T* dx = op.dlogits.row(i);
    if (target < 0 && !keeps_masked) {
      store_zero(vocabulary, dx);
      continue;
    }
    require(target < vocabulary, "a target is an index of the vocabulary");
    const T* x = op.logits.row(i);
    const float m = op.maximum.data[i];
    const float inverse = div(1.0f, op.sum.data[i]);
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const float e = expn(sub(load(x[v]), m));
      const float p = mul(flushes && e < 0x1p-20f ? 0.0f : e, inverse);
      dx[v] = st<T>(mul(sub(p, v == target ? 1.0f : 0.0f), scale));
    }
  }
}

void run(HostQueue, const MicrobatchLoss& op) {
  const bool mean = fault("microbatch-loss-is-mean-of-rows");
  float sum = 0.0f;
  column_sums(op.loss.cols, 1, &sum, [&](std::int64_t i, float* p) { *p = add(*p, op.loss.data[i]); });
  *op.total.data = mean ? div(sum, static_cast<float>(op.loss.cols)) : mul(sum, op.state.data->inverse_targets);
}

template void run(HostQueue, const CrossEntropyForward<float>&);
template void run(HostQueue, const CrossEntropyForward<bf16>&);
template void run(HostQueue, const CrossEntropyBackward<float>&);
template void run(HostQueue, const CrossEntropyBackward<bf16>&);

}  // namespace lockstep
