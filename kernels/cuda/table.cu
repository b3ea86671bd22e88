#include "kernels/cuda/table.h"
#include "kernels/ops.h"
#include "kernels/require.h"

namespace lockstep {
namespace {

using Runner = void (*)(CudaQueue, const void*);

template <class Op>
void run_as(CudaQueue queue, const void* op) {
  run(queue, *static_cast<const Op*>(op));
}

template <class List>
struct Table;
template <class... Ops>
struct Table<OpList<Ops...>> {
  static constexpr Runner runners[] = {run_as<Ops>...};
};

}  // namespace

void run_on_cuda(int op_id, CUstream_st* stream, const void* op) {
  require(op_id >= 0 && op_id < AllOps::size, "an op's id is its place in AllOps");
  Table<AllOps>::runners[op_id](CudaQueue{stream}, op);
}

}  // namespace lockstep
