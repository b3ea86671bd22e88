// The three products of a linear layer in the form in which a library takes products.
#pragma once

#include "kernels/cuda/gemm/product.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/linear.h"

namespace lockstep {

class ProductPlans;

// Whether a library could run the op: true for bf16 and fp8.
template <class Op>
inline constexpr bool has_plan = false;
template <>
inline constexpr bool has_plan<LinearForward<bf16>> = true;
template <>
inline constexpr bool has_plan<LinearInputGradient<bf16>> = true;
template <>
inline constexpr bool has_plan<LinearWeightGradient<bf16>> = true;
template <>
inline constexpr bool has_plan<Fp8LinearForward> = true;
template <>
inline constexpr bool has_plan<Fp8LinearInputGradient> = true;
template <>
inline constexpr bool has_plan<Fp8LinearWeightGradient> = true;

void plan(ProductPlans& plans, const LinearForward<bf16>& op);
void plan(ProductPlans& plans, const LinearInputGradient<bf16>& op);
void plan(ProductPlans& plans, const LinearWeightGradient<bf16>& op);
// A product of several segments has no plan: its scales are many.
void plan(ProductPlans& plans, const Fp8LinearForward& op);
void plan(ProductPlans& plans, const Fp8LinearInputGradient& op);
void plan(ProductPlans& plans, const Fp8LinearWeightGradient& op);

// Run the product by the library's fastest algorithm, whatever its bits. False if there is none.
bool run_fastest(CUstream_st* stream, const LinearForward<bf16>& op);
bool run_fastest(CUstream_st* stream, const LinearInputGradient<bf16>& op);
bool run_fastest(CUstream_st* stream, const LinearWeightGradient<bf16>& op);
bool run_fastest(CUstream_st* stream, const Fp8LinearForward& op);
bool run_fastest(CUstream_st* stream, const Fp8LinearInputGradient& op);
bool run_fastest(CUstream_st* stream, const Fp8LinearWeightGradient& op);

// Runs one of the three products by our own kernel.
void run_own_product(CudaQueue queue, const Product& product, const ProductMemory& memory);
void run_own_fp8_product(CudaQueue queue, const Product& product, const ProductMemory& memory);

// Return false if this op has no plan or no workspace; then our own kernel must run it. A product
// of fp8 gives rows that are not in use whatever their codes give.
bool run_planned(CudaQueue queue, const LinearForward<bf16>& op);
bool run_planned(CudaQueue queue, const LinearInputGradient<bf16>& op);
bool run_planned(CudaQueue queue, const LinearWeightGradient<bf16>& op);
bool run_planned(CudaQueue queue, const Fp8LinearForward& op);
bool run_planned(CudaQueue queue, const Fp8LinearInputGradient& op);
bool run_planned(CudaQueue queue, const Fp8LinearWeightGradient& op);
template <class Op>
bool run_planned(CudaQueue, const Op&) {
  return false;  // fp32 is the plain reference.
}

}  // namespace lockstep
