// cuBLASLt, opened at run time. A machine without it runs our own kernels.
#pragma once

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define LOCKSTEP_HAS_CUBLAS_LT 1
#else
#define LOCKSTEP_HAS_CUBLAS_LT 0
#endif

#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/gemm/product.h"

struct CUstream_st;

#if LOCKSTEP_HAS_CUBLAS_LT

namespace lockstep {

// Thrown where the library refuses a request; what() is its name of the status.
struct LibraryRefusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A handle, and the functions of the library that are used. They throw LibraryRefusal.
class CublasLt {
 public:
  // Returns null if the library of the header's version is not found or does not start.
  static std::unique_ptr<CublasLt> open();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void check(cublasStatus_t status) const;
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

 private:
  CublasLt() = default;
};

// A product described to the library. Ours is row-major and the library's column-major, so that it
// computes the transpose of c with its factors exchanged.
class LibraryProduct {
 public:
  LibraryProduct(const CublasLt& library, const Product& product);
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  // Returns algorithms, the library's best guess first. `one_chain` excludes those that split k
  // over blocks and add the parts.
  std::vector<cublasLtMatmulAlgo_t> algorithms(bool one_chain, std::size_t workspace_bytes,
                                               int most) const;
  // The scales of fp8, which lie at multiples of 16 bytes, are part of the description: one thread
  // at a time runs it.
  void run(CUstream_st* stream, const cublasLtMatmulAlgo_t& algorithm,
           const ProductMemory& memory) const;

 private:
  const CublasLt& library_;
  float beta_;
  bool is_scaled_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

}  // namespace lockstep

#endif
