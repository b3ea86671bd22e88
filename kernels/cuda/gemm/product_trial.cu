#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/gemm/fp8_trial.h"

namespace lockstep {
namespace {

constexpr unsigned kBlocks = 1024;  // Each thread strides over the matrix.

template <class Write>
__device__ void for_each_element(std::int64_t rows, std::int64_t cols, const Write& write) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       e < rows * cols; e += step) {
    write(e / cols, e % cols);
  }
}

__global__ void write_a(Product p, bf16* to) {
  pdl_begin();
  for_each_element(p.a_along ? p.m : p.k, p.a_along ? p.k : p.m,
                   [&](std::int64_t i, std::int64_t j) {
                     to[i * p.a_pitch + j] = p.a_along ? trial::a(i, j, p.k) : trial::a(j, i, p.k);
                   });
}
__global__ void write_b(Product p, bf16* to) {
  pdl_begin();
  for_each_element(p.b_along ? p.n : p.k, p.b_along ? p.k : p.n,
                   [&](std::int64_t i, std::int64_t j) {
                     to[i * p.b_pitch + j] = p.b_along ? trial::b(i, j, p.k) : trial::b(j, i, p.k);
                   });
}
template <class F>
__global__ void write_a_codes(Product p, F* to) {
  pdl_begin();
  for_each_element(p.m, p.k, [&](std::int64_t i, std::int64_t j) {
    to[i * p.a_pitch + j] = trial::a_code<F>(i, j, p.k);
  });
}
__global__ void write_b_codes(Product p, e4m3* to) {
  pdl_begin();
  for_each_element(p.n, p.k, [&](std::int64_t i, std::int64_t j) {
    to[i * p.b_pitch + j] = trial::b_code(i, j, p.k);
  });
}
template <class Result>
__global__ void write_c(Product p, int trial, Result* to) {
  pdl_begin();
  for_each_element(p.m, p.n, [&](std::int64_t i, std::int64_t j) {
    const float before =
        p.factors == Factors::bf16 ? trial::c(i, j) : trial::c_of_codes(p, trial, i, j);
    to[i * p.c_pitch + j] = st<Result>(p.accumulates ? before : quiet_nan());
  });
}
template <class Result>
__global__ void gather(Product p, const Result* from, float* to) {
  pdl_begin();
  const trial::StepLocation at = trial::place(p, static_cast<int>(threadIdx.x));
  to[threadIdx.x] = load(from[at.row * p.c_pitch + at.col]);
}

template <class Result>
__global__ void count_differences(Product p, const Result* one, const Result* other,
                                  unsigned long long* count) {
  pdl_begin();
  for_each_element(p.m, p.n, [&](std::int64_t i, std::int64_t j) {
    const float x = load(one[i * p.c_pitch + j]), y = load(other[i * p.c_pitch + j]);
    if (bits(x) != bits(y) && (x == x || y == y)) atomicAdd(count, 1ull);
  });
}

}  // namespace

void write_trial(CUstream_st* stream, const Product& product, void* a, void* b) {
  const CudaQueue queue{stream};
  if (product.factors != Factors::bf16) {
    if (product.factors == Factors::e4m3) {
      launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_a_codes<e4m3>, product,
             static_cast<e4m3*>(a));
    } else {
      launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_a_codes<e5m2>, product,
             static_cast<e5m2*>(a));
    }
    launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_b_codes, product,
           static_cast<e4m3*>(b));
    return;
  }
  launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_a, product, static_cast<bf16*>(a));
  launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_b, product, static_cast<bf16*>(b));
}
void write_trial_result(CUstream_st* stream, const Product& product, int trial, void* c) {
  const CudaQueue queue{stream};
  if (product.fp32) {
    launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_c<float>, product, trial,
           static_cast<float*>(c));
  } else {
    launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, write_c<bf16>, product, trial,
           static_cast<bf16*>(c));
  }
}
void gather_trial(CUstream_st* stream, const Product& product, const void* c, float* gathered) {
  const CudaQueue queue{stream};
  if (product.fp32) {
    launch(queue, dim3(1), dim3(trial::kPlaces), kPdl, gather<float>, product,
           static_cast<const float*>(c), gathered);
  } else {
    launch(queue, dim3(1), dim3(trial::kPlaces), kPdl, gather<bf16>, product,
           static_cast<const bf16*>(c), gathered);
  }
}

void count_trial_differences(CUstream_st* stream, const Product& product, const void* one,
                             const void* other, unsigned long long* count) {
  const CudaQueue queue{stream};
  if (product.fp32) {
    launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, count_differences<float>, product,
           static_cast<const float*>(one), static_cast<const float*>(other), count);
  } else {
    launch(queue, dim3(kBlocks), dim3(kThreads), kPdl, count_differences<bf16>, product,
           static_cast<const bf16*>(one), static_cast<const bf16*>(other), count);
  }
}

}  // namespace lockstep
