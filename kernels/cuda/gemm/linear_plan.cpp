#include "kernels/cuda/gemm/linear_plan.h"

#include "kernels/cuda/gemm/product_plans.h"

namespace lockstep {
namespace {

struct Planned {
  Product product;
  ProductMemory memory;
};

Planned planned(const LinearForward<bf16>& op) {
  return {{.m = op.x.rows,
           .n = op.w.rows,
           .k = op.x.cols,
           .a_pitch = op.x.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.y.pitch},
          {op.x.data, op.w.data, op.y.data, op.workspace.data,
           static_cast<std::size_t>(op.workspace.cols)}};
}
Planned planned(const LinearInputGradient<bf16>& op) {
  return {{.m = op.dy.rows,
           .n = op.w.cols,
           .k = op.dy.cols,
           .a_pitch = op.dy.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.dx.pitch,
           .b_along = false},
          {op.dy.data, op.w.data, op.dx.data, op.workspace.data,
           static_cast<std::size_t>(op.workspace.cols)}};
}
Planned planned(const LinearWeightGradient<bf16>& op) {
  return {{.m = op.dy.cols,
           .n = op.x.cols,
           .k = op.dy.rows,
           .a_pitch = op.dy.pitch,
           .b_pitch = op.x.pitch,
           .c_pitch = op.acc ? op.acc.pitch : op.dw.pitch,
           .a_along = false,
           .b_along = false,
           .fp32 = true,
           .accumulates = static_cast<bool>(op.acc)},
          {op.dy.data, op.x.data, op.acc ? op.acc.data : op.dw.data, op.workspace.data,
           static_cast<std::size_t>(op.workspace.cols)}};
}

template <class Op>
void plan_op(ProductPlans& plans, const Op& op) {
  const Planned p = planned(op);
  plans.plan(p.product, p.memory.workspace_bytes);
}
template <class Op>
bool run_op(CudaQueue queue, const Op& op) {
  if (queue.plans == nullptr || !op.workspace) return false;
  const Planned p = planned(op);
  return queue.plans->run(queue.stream, p.product, p.memory);
}

template <class Op>
bool run_fastest_op(CUstream_st* stream, const Op& op) {
  const Planned p = planned(op);
  return ProductPlans::run_fastest(stream, p.product, p.memory);
}

}  // namespace

void plan(ProductPlans& plans, const LinearForward<bf16>& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const LinearInputGradient<bf16>& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const LinearWeightGradient<bf16>& op) { plan_op(plans, op); }

bool run_fastest(CUstream_st* stream, const LinearForward<bf16>& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const LinearInputGradient<bf16>& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const LinearWeightGradient<bf16>& op) {
  return run_fastest_op(stream, op);
}

bool run_planned(CudaQueue queue, const LinearForward<bf16>& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const LinearInputGradient<bf16>& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const LinearWeightGradient<bf16>& op) {
  return run_op(queue, op);
}

}  // namespace lockstep
