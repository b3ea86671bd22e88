#include "kernels/cuda/gemm/linear_plan.h"

#include "kernels/cuda/gemm/product_plans.h"

namespace lockstep {
namespace {

struct Planned {
  Product product;
  ProductMemory memory;
};

template <class A, class B>
ProductMemory memory_of(const A& a, const B& b, void* c, const Scratch<std::uint8_t>& workspace,
                        const In<float>& a_scale = {}, const In<float>& b_scale = {}) {
  return {.a = a.data,
          .b = b.data,
          .c = c,
          .a_scale = a_scale.data,
          .b_scale = b_scale.data,
          .workspace = workspace.data,
          .workspace_bytes = static_cast<std::size_t>(workspace.cols)};
}

Planned planned(const LinearForward<bf16>& op) {
  return {{.m = op.x.rows,
           .n = op.w.rows,
           .k = op.x.cols,
           .a_pitch = op.x.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.y.pitch},
          memory_of(op.x, op.w, op.y.data, op.workspace)};
}
Planned planned(const LinearInputGradient<bf16>& op) {
  return {{.m = op.dy.rows,
           .n = op.w.cols,
           .k = op.dy.cols,
           .a_pitch = op.dy.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.dx.pitch,
           .b_along = false},
          memory_of(op.dy, op.w, op.dx.data, op.workspace)};
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
          memory_of(op.dy, op.x, op.acc ? op.acc.data : op.dw.data, op.workspace)};
}

Planned planned(const Fp8LinearForward& op) {
  return {{.factors = Factors::e4m3,
           .m = op.x.rows,
           .n = op.w.rows,
           .k = op.x.cols,
           .a_pitch = op.x.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.y.pitch},
          memory_of(op.x, op.w, op.y.data, op.workspace, op.x_scale, op.w_scale)};
}
Planned planned(const Fp8LinearInputGradient& op) {
  return {{.factors = Factors::e5m2_e4m3,
           .m = op.dy.rows,
           .n = op.w.rows,
           .k = op.dy.cols,
           .a_pitch = op.dy.pitch,
           .b_pitch = op.w.pitch,
           .c_pitch = op.dx.pitch},
          memory_of(op.dy, op.w, op.dx.data, op.workspace, op.dy_scale, op.w_scale)};
}
Planned planned(const Fp8LinearWeightGradient& op) {
  return {{.factors = Factors::e5m2_e4m3,
           .m = op.dy.rows,
           .n = op.x.rows,
           .k = op.dy.cols,
           .a_pitch = op.dy.pitch,
           .b_pitch = op.x.pitch,
           .c_pitch = op.acc ? op.acc.pitch : op.dw.pitch,
           .fp32 = true,
           .accumulates = static_cast<bool>(op.acc)},
          memory_of(op.dy, op.x, op.acc ? op.acc.data : op.dw.data, op.workspace, op.dy_scale,
                    op.x_scale)};
}

template <class Op>
bool has_one_segment(const Op&) {
  return true;
}
bool has_one_segment(const Fp8LinearForward& op) { return !op.start && op.x_scale.cols == 1; }
bool has_one_segment(const Fp8LinearInputGradient& op) {
  return !op.start && op.dy_scale.cols == 1;
}
bool has_one_segment(const Fp8LinearWeightGradient& op) {
  return !op.start && op.x_scale.cols == 1;
}

template <class Op>
void plan_op(ProductPlans& plans, const Op& op) {
  if (!has_one_segment(op)) return;
  const Planned p = planned(op);
  plans.plan(p.product, p.memory.workspace_bytes);
}
template <class Op>
bool run_op(CudaQueue queue, const Op& op) {
  if (queue.plans == nullptr || !op.workspace || !has_one_segment(op)) return false;
  const Planned p = planned(op);
  return queue.plans->run(queue.stream, p.product, p.memory);
}

template <class Op>
bool run_fastest_op(CUstream_st* stream, const Op& op) {
  if (!has_one_segment(op)) return false;
  const Planned p = planned(op);
  return ProductPlans::run_fastest(stream, p.product, p.memory);
}

}  // namespace

void plan(ProductPlans& plans, const LinearForward<bf16>& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const LinearInputGradient<bf16>& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const LinearWeightGradient<bf16>& op) { plan_op(plans, op); }

void plan(ProductPlans& plans, const Fp8LinearForward& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const Fp8LinearInputGradient& op) { plan_op(plans, op); }
void plan(ProductPlans& plans, const Fp8LinearWeightGradient& op) { plan_op(plans, op); }

bool run_fastest(CUstream_st* stream, const LinearForward<bf16>& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const LinearInputGradient<bf16>& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const LinearWeightGradient<bf16>& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const Fp8LinearForward& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const Fp8LinearInputGradient& op) {
  return run_fastest_op(stream, op);
}
bool run_fastest(CUstream_st* stream, const Fp8LinearWeightGradient& op) {
  return run_fastest_op(stream, op);
}

bool run_planned(CudaQueue queue, const LinearForward<bf16>& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const LinearInputGradient<bf16>& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const LinearWeightGradient<bf16>& op) {
  return run_op(queue, op);
}

bool run_planned(CudaQueue queue, const Fp8LinearForward& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const Fp8LinearInputGradient& op) { return run_op(queue, op); }
bool run_planned(CudaQueue queue, const Fp8LinearWeightGradient& op) { return run_op(queue, op); }

}  // namespace lockstep
