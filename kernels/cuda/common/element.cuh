// Access to the elements of operands, and the element that a thread owns.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/cuda/common/launch.h"

namespace lockstep {

// Element (i, k) of a view; Operand's own members are host functions.
template <class T, Access kAccess>
__device__ __forceinline__ auto& at(const Operand<T, kAccess>& operand, std::int64_t i,
                                    std::int64_t k) {
  return operand.data[i * operand.pitch + k];
}

// For integers, since the contract's `min` is for floats and would round.
__device__ __forceinline__ std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
// The item of a warp where each warp has one; the same in all lanes.
__device__ __forceinline__ std::int64_t warp_item() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_index();
}

// The element of a thread where each thread has one of a [rows, cols] view, row-major.
struct Element {
  std::int64_t row;
  std::int64_t col;
  bool inside;
};
__device__ __forceinline__ Element own_element(std::int64_t rows, std::int64_t cols) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  return {e / cols, e % cols, e < rows * cols};
}
template <class Kernel, class... Arguments>
void launch_elements(CudaQueue queue, std::int64_t rows, std::int64_t cols, Kernel kernel,
                     const Arguments&... arguments) {
  launch(queue, dim3(blocks_for(rows * cols, kThreads)), dim3(kThreads), kPdl, kernel,
         arguments...);
}

// Writes +0 to every row of no document, for ops whose kernels walk documents. One warp per row.
template <class T>
__global__ void clear_rows_of_no_document_kernel(In<std::int32_t> row_document, Out<T> out) {
  pdl_begin();
  const std::int64_t row = warp_item();
  if (row >= out.rows || at(row_document, 0, row) >= 0) return;
  for (std::int64_t k = lane_index(); k < out.cols; k += kWarp) at(out, row, k) = st<T>(0.0f);
}
template <class T>
void clear_rows_of_no_document(CudaQueue queue, const In<std::int32_t>& row_document,
                               const Out<T>& out) {
  launch(queue, dim3(blocks_for(out.rows, kWarps)), dim3(kThreads), kPdl,
         clear_rows_of_no_document_kernel<T>, row_document, out);
}

}  // namespace lockstep
