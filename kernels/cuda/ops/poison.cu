#include "kernels/cuda/common/element.cuh"
#include "kernels/diagnostics/poison.h"

namespace lockstep {
namespace {

__global__ void poison_elements(PoisonMemory op) {
  pdl_begin();
  const Element e = own_element(op.memory.rows, op.memory.cols);
  if (e.inside) at(op.memory, e.row, e.col) = op.half;
}

}  // namespace

void run(CudaQueue queue, const PoisonMemory& op) {
  launch_elements(queue, op.memory.rows, op.memory.cols, poison_elements, op);
}

}  // namespace lockstep
