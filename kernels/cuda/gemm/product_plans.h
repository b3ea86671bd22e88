// The algorithm of each bf16 product on this GPU. It is chosen at plan time, and eager runs and
// captures use the same object.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/gemm/product.h"

struct CUstream_st;

namespace lockstep {

// An algorithm of cuBLASLt is admitted for a product if it gives the bits of our own kernel in
// every element of a random product, in which our kernel has the model's bits in 64 elements
// (arithmetic.md 3). Our own kernel runs products that have no admitted algorithm or were never
// planned. The process keeps the results, so that a product is tried once per GPU.
class ProductPlans {
 public:
  ProductPlans();  // Opens nothing: plan() opens the library.
  ~ProductPlans();

  // Allocates memory and waits for the GPU, so must not be called during a capture. A second call
  // for an equal product does nothing.
  void plan(const Product& product, std::size_t workspace_bytes);
  // Returns false if the library has no plan for this product at these addresses. Throws
  // std::runtime_error if it fails.
  bool run(CUstream_st* stream, const Product& product, const ProductMemory& memory) const;

  // A product that is also planned for fewer multiprocessors counts once.
  int admitted() const;            // Products planned for the library.
  int refused() const;             // Products planned for our own kernel.
  std::int64_t passed_on() const;  // Calls of run() that returned false.

  // Runs the library's fastest algorithm, whatever its order of the sum, in a workspace of its own.
  // False if there is none. The first call chooses as plan() does, so must not be in a capture.
  static bool run_fastest(CUstream_st* stream, const Product& product, const ProductMemory& memory);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
