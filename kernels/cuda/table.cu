#include "kernels/core/require.h"
#include "kernels/cuda/attention/cudnn_plans.h"
#include "kernels/cuda/gemm/linear_plan.h"
#include "kernels/cuda/gemm/product_plans.h"
#include "kernels/cuda/table.h"
#include "kernels/submission/ops.h"

namespace lockstep {
namespace {

using Runner = void (*)(CudaQueue, const void*);

template <class Op>
void run_as(CudaQueue queue, const void* op) {
  run(queue, *static_cast<const Op*>(op));
}

using Planner = void (*)(ProductPlans&, const void*);

template <class Op>
void plan_as(ProductPlans& plans, const void* op) {
  const auto form = library_form(*static_cast<const Op*>(op));
  if (form) plans.plan(form->product, form->memory.workspace_bytes);
}

using Workspace = std::int64_t (*)(const void*);

template <class Op>
std::int64_t workspace_as(const void* op) {
  if constexpr (requires(const Op& one) { CudnnPlans::workspace_bytes(one); }) {
    CudnnPlans::plan(*static_cast<const Op*>(op));
    return CudnnPlans::workspace_bytes(*static_cast<const Op*>(op));
  } else {
    return 0;
  }
}

using Fastest = bool (*)(CUstream_st*, const void*);

template <class Op>
bool run_fastest_as(CUstream_st* stream, const void* op) {
  const auto form = library_form(*static_cast<const Op*>(op));
  return form && ProductPlans::run_fastest(stream, form->product, form->memory);
}

template <class List>
struct Table;
template <class... Ops>
struct Table<OpList<Ops...>> {
  static constexpr Runner runners[] = {run_as<Ops>...};
  static constexpr Planner planners[] = {plan_as<Ops>...};
  static constexpr Workspace workspaces[] = {workspace_as<Ops>...};
  static constexpr Fastest fastest[] = {run_fastest_as<Ops>...};
};

}  // namespace

void run_on_cuda(int op_id, CUstream_st* stream, const ProductPlans& plans, const void* op) {
  require(op_id >= 0 && op_id < AllOps::size, "an op's id is its place in AllOps");
  Table<AllOps>::runners[op_id](CudaQueue{stream, &plans}, op);
}

void plan_on_cuda(int op_id, ProductPlans& plans, const void* op) {
  require(op_id >= 0 && op_id < AllOps::size, "an op's id is its place in AllOps");
  Table<AllOps>::planners[op_id](plans, op);
}

std::int64_t workspace_on_cuda(int op_id, const void* op) {
  require(op_id >= 0 && op_id < AllOps::size, "an op's id is its place in AllOps");
  return Table<AllOps>::workspaces[op_id](op);
}

bool run_fastest_on_cuda(int op_id, CUstream_st* stream, const void* op) {
  require(op_id >= 0 && op_id < AllOps::size, "an op's id is its place in AllOps");
  return Table<AllOps>::fastest[op_id](stream, op);
}

}  // namespace lockstep
