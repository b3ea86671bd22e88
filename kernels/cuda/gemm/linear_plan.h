// The three products of a linear layer as a library's products.
#pragma once

#include "kernels/cuda/gemm/product.h"
#include "kernels/ops/linear.h"

namespace lockstep {

class ProductPlans;

// Which ops a library could do: the bf16 ones.
template <class Op>
inline constexpr bool has_plan = false;
template <>
inline constexpr bool has_plan<LinearForward<bf16>> = true;
template <>
inline constexpr bool has_plan<LinearInputGradient<bf16>> = true;
template <>
inline constexpr bool has_plan<LinearWeightGradient<bf16>> = true;

void plan(ProductPlans& plans, const LinearForward<bf16>& op);
void plan(ProductPlans& plans, const LinearInputGradient<bf16>& op);
void plan(ProductPlans& plans, const LinearWeightGradient<bf16>& op);

// By the library's fastest algorithm, whatever its bits; false if there is none.
bool run_fastest(CUstream_st* stream, const LinearForward<bf16>& op);
bool run_fastest(CUstream_st* stream, const LinearInputGradient<bf16>& op);
bool run_fastest(CUstream_st* stream, const LinearWeightGradient<bf16>& op);

// One of the three by our own kernel.
void run_own_product(CudaQueue queue, const Product& product, const ProductMemory& memory);

// False if there is no plan, or no workspace, for this op: our own kernel does it.
bool run_planned(CudaQueue queue, const LinearForward<bf16>& op);
bool run_planned(CudaQueue queue, const LinearInputGradient<bf16>& op);
bool run_planned(CudaQueue queue, const LinearWeightGradient<bf16>& op);
template <class Op>
bool run_planned(CudaQueue, const Op&) {
  return false;  // fp32 is the plain reference.
}

}  // namespace lockstep
