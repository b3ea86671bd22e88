// Which algorithm computes a bf16 product on this GPU. Chosen at plan time, the same object in
// eager runs and captures.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/gemm/product.h"

struct CUstream_st;

namespace lockstep {

// An algorithm of cuBLASLt is admitted for a product after it gave, in every element of a random
// product, the bits of our own kernel, which itself had the model's in 64 of them (arithmetic.md
// 3). What has no admitted algorithm, or was never planned, is for our own kernel. What was found
// out is kept by the process: the same product asks a GPU once.
class ProductPlans {
 public:
  ProductPlans();  // Opens nothing: the library is opened when a product is planned.
  ~ProductPlans();

  // Allocates memory and waits for the GPU: not during a capture. A second call for an equal
  // product does nothing.
  void plan(const Product& product, std::size_t workspace_bytes);
  // False if the library does not do this product at these addresses. Throws std::runtime_error
  // where it fails.
  bool run(CUstream_st* stream, const Product& product, const ProductMemory& memory) const;

  int admitted() const;            // Products planned with an algorithm of the library.
  int refused() const;             // Products planned for our own kernel.
  std::int64_t passed_on() const;  // Calls of run() that gave false.

  // By the library's fastest algorithm, whatever its order of the sum, in a workspace of its own;
  // false if there is none. The first call chooses as plan() does, and is not for a capture either.
  static bool run_fastest(CUstream_st* stream, const Product& product, const ProductMemory& memory);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
