#include "kernels/cuda/gemm/cublas_lt.h"

#include <dlfcn.h>

#include <string>

#if LOCKSTEP_HAS_CUBLAS_LT

namespace lockstep {
namespace {

// The alignment of every row that the tensor memory accelerator needs; our buffers exceed it.
constexpr std::uint32_t kAlignment = 16;

cudaDataType first_type(Factors factors) {  // The library's first factor is our b.
  return factors == Factors::bf16 ? CUDA_R_16BF : CUDA_R_8F_E4M3;
}
cudaDataType second_type(Factors factors) {
  return factors == Factors::e5m2_e4m3 ? CUDA_R_8F_E5M2 : first_type(factors);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<CublasLt> CublasLt::open() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* file = nullptr;
  for (const std::string& path : {name, "/usr/local/cuda/lib64/" + name}) {
    if (file == nullptr)
      file = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);  // Never closed, because it has threads.
  }
  std::unique_ptr<CublasLt> lt(new CublasLt);
  const bool all = file != nullptr && find(file, "cublasLtCreate", lt->create) &&
                   find(file, "cublasLtDestroy", lt->destroy) &&
                   find(file, "cublasLtGetStatusName", lt->status_name) &&
                   find(file, "cublasLtMatmulDescCreate", lt->desc_create) &&
                   find(file, "cublasLtMatmulDescDestroy", lt->desc_destroy) &&
                   find(file, "cublasLtMatmulDescSetAttribute", lt->desc_set) &&
                   find(file, "cublasLtMatrixLayoutCreate", lt->layout_create) &&
                   find(file, "cublasLtMatrixLayoutDestroy", lt->layout_destroy) &&
                   find(file, "cublasLtMatmulPreferenceCreate", lt->preference_create) &&
                   find(file, "cublasLtMatmulPreferenceDestroy", lt->preference_destroy) &&
                   find(file, "cublasLtMatmulPreferenceSetAttribute", lt->preference_set) &&
                   find(file, "cublasLtMatmulAlgoGetHeuristic", lt->heuristic) &&
                   find(file, "cublasLtMatmul", lt->matmul);
  if (!all || lt->create(&lt->handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
  return lt;
}

CublasLt::~CublasLt() {
  if (handle != nullptr) static_cast<void>(destroy(handle));
}

void CublasLt::check(cublasStatus_t status) const {
  if (status != CUBLAS_STATUS_SUCCESS) throw LibraryRefusal(status_name(status));
}

LibraryProduct::LibraryProduct(const CublasLt& library, const Product& p)
    : library_(library),
      beta_(p.accumulates ? 1.0f : 0.0f),
      is_scaled_(p.factors != Factors::bf16) {
  library.check(library.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = p.b_along ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = p.a_along ? CUBLAS_OP_N : CUBLAS_OP_T;
  library.check(library.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  library.check(library.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  if (p.multiprocessors != 0) {
    library.check(library.desc_set(desc_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &p.multiprocessors,
                                   sizeof p.multiprocessors));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType type, std::int64_t row,
                          std::int64_t rows, std::int64_t pitch) {
    library.check(library.layout_create(&made, type, static_cast<std::uint64_t>(row),
                                        static_cast<std::uint64_t>(rows), pitch));
  };
  layout(first_, first_type(p.factors), p.b_along ? p.k : p.n, p.b_along ? p.n : p.k, p.b_pitch);
  layout(second_, second_type(p.factors), p.a_along ? p.k : p.m, p.a_along ? p.m : p.k, p.a_pitch);
  layout(result_, p.fp32 ? CUDA_R_32F : CUDA_R_16BF, p.n, p.m, p.c_pitch);
}

LibraryProduct::~LibraryProduct() {
  for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) {
    if (layout != nullptr) static_cast<void>(library_.layout_destroy(layout));
  }
  if (desc_ != nullptr) static_cast<void>(library_.desc_destroy(desc_));
}

std::vector<cublasLtMatmulAlgo_t> LibraryProduct::algorithms(bool one_chain,
                                                             std::size_t workspace_bytes,
                                                             int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  library_.check(library_.preference_create(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    library_.check(library_.preference_set(preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, kAlignment);
  }
  if (one_chain)
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = library_.heuristic(library_.handle, desc_, first_, second_, result_,
                                                   result_, preference, most, found.data(), &count);
  static_cast<void>(library_.preference_destroy(preference));
  std::vector<cublasLtMatmulAlgo_t> list;  // May stay empty: the library may know none.
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS) list.push_back(one.algo);
  }
  return list;
}

void LibraryProduct::run(CUstream_st* stream, const cublasLtMatmulAlgo_t& algorithm,
                         const ProductMemory& memory) const {
  if (is_scaled_) {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const float* scale) {
      library_.check(library_.desc_set(desc_, attribute, &scale, sizeof scale));
    };
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, memory.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, memory.a_scale);
  }
  const float one = 1.0f;
  library_.check(library_.matmul(library_.handle, desc_, &one, memory.b, first_, memory.a, second_,
                                 &beta_, memory.c, result_, memory.c, result_, &algorithm,
                                 memory.workspace, memory.workspace_bytes, stream));
}

}  // namespace lockstep

#endif
