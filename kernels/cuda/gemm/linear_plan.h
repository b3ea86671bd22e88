// The three products of a linear layer in the form in which a library takes products.
#pragma once

#include <optional>

#include "kernels/cuda/gemm/product.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/linear.h"

namespace lockstep {

// A product as a library takes it, and where its operands lie.
struct LibraryForm {
  Product product;
  ProductMemory memory;
};

std::optional<LibraryForm> library_form(const LinearForward<bf16>& op);
std::optional<LibraryForm> library_form(const LinearInputGradient<bf16>& op);
std::optional<LibraryForm> library_form(const LinearWeightGradient<bf16>& op);
// A product of several segments has none: its scales are many.
std::optional<LibraryForm> library_form(const Fp8LinearForward& op);
std::optional<LibraryForm> library_form(const Fp8LinearInputGradient& op);
std::optional<LibraryForm> library_form(const Fp8LinearWeightGradient& op);
// No other op has one: fp32 products are the plain reference.
template <class Op>
std::optional<LibraryForm> library_form(const Op&) {
  return {};
}

// Runs the product by its plan. Returns false if it has no form, no workspace or no plan; then our
// own kernel must run it. A product of fp8 gives rows that are not in use whatever their codes
// give.
bool run_planned(CudaQueue queue, const std::optional<LibraryForm>& form);

// Runs one of the three products by our own kernel.
void run_own_product(CudaQueue queue, const Product& product, const ProductMemory& memory);
void run_own_fp8_product(CudaQueue queue, const Product& product, const ProductMemory& memory);

}  // namespace lockstep
