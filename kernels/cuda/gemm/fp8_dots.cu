#include "kernels/cuda/gemm/fp8_tile.cuh"
#include "kernels/diagnostics/fp8_dots.h"

namespace lockstep {
namespace {

template <class A, class B>
__global__ void __launch_bounds__(kThreads, 1) fp8_dots(const __grid_constant__ Fp8Dots<A, B> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * kFp8Tile;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kFp8Tile;
  const std::int64_t rows = smaller(kFp8Tile, op.d.rows - m0);
  const std::int64_t columns = smaller(kFp8Tile, op.d.cols - n0);
  Fp8Sums sums;
  sums.multiply(*reinterpret_cast<Fp8Shared*>(memory),
                Fp8Rows<A>{&at(op.a, m0, 0), op.a.pitch, rows, op.a.cols},
                Fp8Rows<B>{&at(op.b, n0, 0), op.b.pitch, columns, op.a.cols});
  sums.each([&](int m, int n, float sum) {
    if (m < rows && n < columns) at(op.d, m0 + m, n0 + n) = sum;
  });
}

}  // namespace

template <class A, class B>
void run(CudaQueue queue, const Fp8Dots<A, B>& op) {
  auto* const kernel = fp8_dots<A, B>;
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Fp8Shared)));
  launch(queue, dim3(blocks_for(op.d.rows, kFp8Tile), blocks_for(op.d.cols, kFp8Tile)),
         dim3(kThreads), {.shared_bytes = sizeof(Fp8Shared), .overlaps = true}, kernel, op);
}
template void run(CudaQueue, const Fp8Dots<e4m3, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e4m3, e5m2>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e5m2>&);

}  // namespace lockstep
