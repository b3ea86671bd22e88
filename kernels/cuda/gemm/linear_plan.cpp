#include "kernels/cuda/gemm/linear_plan.h"

#include "kernels/cuda/gemm/product_plans.h"

namespace lockstep {
namespace {

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

}  // namespace

std::optional<LibraryForm> library_form(const LinearForward<bf16>& op) {
  return LibraryForm{{.m = op.x.rows,
                      .n = op.w.rows,
                      .k = op.x.cols,
                      .a_pitch = op.x.pitch,
                      .b_pitch = op.w.pitch,
                      .c_pitch = op.y.pitch},
                     memory_of(op.x, op.w, op.y.data, op.workspace)};
}
std::optional<LibraryForm> library_form(const LinearInputGradient<bf16>& op) {
  return LibraryForm{{.m = op.dy.rows,
                      .n = op.w.cols,
                      .k = op.dy.cols,
                      .a_pitch = op.dy.pitch,
                      .b_pitch = op.w.pitch,
                      .c_pitch = op.dx.pitch,
                      .b_along = false},
                     memory_of(op.dy, op.w, op.dx.data, op.workspace)};
}
std::optional<LibraryForm> library_form(const LinearWeightGradient<bf16>& op) {
  return LibraryForm{{.m = op.dy.cols,
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

std::optional<LibraryForm> library_form(const Fp8LinearForward& op) {
  if (op.start || op.x_scale.cols != 1) return {};
  return LibraryForm{{.factors = Factors::e4m3,
                      .m = op.x.rows,
                      .n = op.w.rows,
                      .k = op.x.cols,
                      .a_pitch = op.x.pitch,
                      .b_pitch = op.w.pitch,
                      .c_pitch = op.y.pitch},
                     memory_of(op.x, op.w, op.y.data, op.workspace, op.x_scale, op.w_scale)};
}
std::optional<LibraryForm> library_form(const Fp8LinearInputGradient& op) {
  if (op.start || op.dy_scale.cols != 1) return {};
  return LibraryForm{{.factors = Factors::e5m2_e4m3,
                      .m = op.dy.rows,
                      .n = op.w.rows,
                      .k = op.dy.cols,
                      .a_pitch = op.dy.pitch,
                      .b_pitch = op.w.pitch,
                      .c_pitch = op.dx.pitch},
                     memory_of(op.dy, op.w, op.dx.data, op.workspace, op.dy_scale, op.w_scale)};
}
std::optional<LibraryForm> library_form(const Fp8LinearWeightGradient& op) {
  if (op.start || op.x_scale.cols != 1) return {};
  return LibraryForm{{.factors = Factors::e5m2_e4m3,
                      .m = op.dy.rows,
                      .n = op.x.rows,
                      .k = op.dy.cols,
                      .a_pitch = op.dy.pitch,
                      .b_pitch = op.x.pitch,
                      .c_pitch = op.acc ? op.acc.pitch : op.dw.pitch,
                      .fp32 = true,
                      .accumulates = static_cast<bool>(op.acc)},
                     memory_of(op.dy, op.x, op.acc ? op.acc.data : op.dw.data, op.workspace,
                               op.dy_scale, op.x_scale)};
}

bool run_planned(CudaQueue queue, const std::optional<LibraryForm>& form) {
  if (!form || queue.plans == nullptr || form->memory.workspace == nullptr) return false;
  return queue.plans->run(queue.stream, form->product, form->memory);
}

}  // namespace lockstep
