#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/gemm/linear_plan.h"
#include "kernels/cuda/gemm/product_plans.h"
#include "kernels/cuda/norm/fused_norm.h"
#include "kernels/cuda/ops/fused_loss.h"
#include "kernels/cuda/ops/optimizer.h"
#include "kernels/cuda/pairs.h"
#include "kernels/cuda/table.h"
#include "kernels/submission/ops.h"

namespace lockstep {
namespace {

static_assert(kWorkspaceBeside == kProductWorkspace);

// Submission::as() compares addresses of the program's types with this object's.
template <class Op>
const Op* as(const Submission& op) {
  return op.type().id == AllOps::id_of<Op>() ? static_cast<const Op*>(op.op()) : nullptr;
}

bool writes_what_is_touched(const Submission& writer, const Submission& other) {
  const auto end_of = [](const OperandBytes& one) {
    return static_cast<std::byte*>(one.base) + (one.rows - 1) * one.pitch_bytes + one.row_bytes;
  };
  for (const OperandBytes& written : writer.operands()) {
    if (written.access == Access::in) continue;
    for (const OperandBytes& touched : other.operands()) {
      if (written.base < end_of(touched) && touched.base < end_of(written)) return true;
    }
  }
  return false;
}

// Calls f(first, second) if the two ops are of these types.
template <class First, class Second, class F>
bool if_are(const Submission& first, const Submission& second, F f) {
  const auto* const a = as<First>(first);
  const auto* const b = as<Second>(second);
  return a != nullptr && b != nullptr && f(*a, *b);
}
template <class F>
bool if_pair(const Submission& first, const Submission& second, F f) {
  return if_are<CrossEntropyForward<bf16>, CrossEntropyBackward<bf16>>(first, second, f) ||
         if_are<ResidualForward<bf16>, RmsNormForward<bf16>>(first, second, f);
}

// Calls f(op) if the op is of one of the types that have batches.
template <class F>
bool if_batched(const Submission& op, F f) {
  const auto if_is = [&]<class Op>() {
    const Op* const one = as<Op>(op);
    return one != nullptr && f(*one);
  };
  return if_is.template operator()<ZeroGradient>() ||
         if_is.template operator()<GradientRowSums>() || if_is.template operator()<AdamW>();
}

// A product alone is fastest on all multiprocessors, but beside others its blocks take places from
// the ops that the step waits for, and its own time is hidden. A step of S1 as one graph on an H100
// took 8.19 ms with products chosen for all 132 multiprocessors, 8.05 for 96, 7.96 for 64, 7.94 for
// 48. For 32 it was 0.1 ms slower than for all, on an H200. Packs of more rows than this, as those
// of H1 (8,192), were not timed so: there the choice is for all.
constexpr std::int32_t kMultiprocessorsBeside = 48;
constexpr std::int64_t kRowsBeside = 4096;

LibraryForm form_beside(const LinearWeightGradient<bf16>& op) {
  LibraryForm form = *library_form(op);
  if (op.dy.rows <= kRowsBeside) form.product.multiprocessors = kMultiprocessorsBeside;
  return form;
}

}  // namespace

bool begins_pair(const Submission& op) {
  return as<CrossEntropyForward<bf16>>(op) != nullptr || as<ResidualForward<bf16>>(op) != nullptr;
}

bool comes_between(const Submission& first, const Submission& op) {
  return as<CrossEntropyForward<bf16>>(first) != nullptr && as<MicrobatchLoss>(op) != nullptr;
}

bool are_pair(const Submission& first, const Submission& second) {
  return if_pair(first, second, [](const auto& a, const auto& b) { return can_fuse(a, b); }) &&
         !writes_what_is_touched(second, first);
}

void run_pair(CudaQueue queue, const Submission& first, const Submission& second) {
  if_pair(first, second,
          [&](const auto& a, const auto& b) { return run_fused(queue, a, b), true; });
}

bool runs_beside(const Submission& op) {
  const auto* const product = as<LinearWeightGradient<bf16>>(op);
  if (product == nullptr) return as<MicrobatchLoss>(op) != nullptr;
  if (product->workspace.cols > std::int64_t{kWorkspaceBeside}) return false;
  constexpr std::int64_t kTile = 128;
  return std::int64_t{blocks_for(product->dy.cols, kTile)} * blocks_for(product->x.cols, kTile) <=
         2 * std::int64_t{multiprocessors()};
}

void plan_beside(ProductPlans& plans, const Submission& op) {
  const auto* const product = as<LinearWeightGradient<bf16>>(op);
  if (product == nullptr || !runs_beside(op)) return;
  const LibraryForm form = form_beside(*product);
  plans.plan(form.product, form.memory.workspace_bytes);
}

void run_beside(CudaQueue queue, const Submission& op, void* workspace) {
  if (const auto* const product = as<LinearWeightGradient<bf16>>(op)) {
    LinearWeightGradient<bf16> own = *product;
    if (own.workspace) own.workspace.data = static_cast<std::uint8_t*>(workspace);
    const LibraryForm form = form_beside(own);
    if (!run_planned(queue, form)) run_own_product(queue, form.product, form.memory);
    return;
  }
  run(queue, *as<MicrobatchLoss>(op));
}

bool joins_batch(const Submission& op) {
  return if_batched(op, [](const auto& one) { return joins_batch(one); });
}

void run_batch(CudaQueue queue, const std::vector<Submission>& ops) {
  if_batched(ops.front(), [&]<class Op>(const Op&) {
    std::vector<const Op*> all;
    for (const Submission& op : ops) all.push_back(as<Op>(op));
    return run_batch(queue, std::span<const Op* const>(all)), true;
  });
}

}  // namespace lockstep
