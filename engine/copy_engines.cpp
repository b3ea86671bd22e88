#include "engine/copy_engines.h"

#include <string_view>

namespace lockstep {
namespace {

// From NCCL's sources (ce_coll.cc, enqueue.cc) and issues.
constexpr int kFirst = 22803;            // ncclAllGather and ncclAlltoAll by copy engines.
constexpr int kFirstCuda = 12050;        // Of the driver, for them.
constexpr int kCudaWithoutPeer = 13010;  // From here on a stream writes no value to another GPU (issue 2052).
constexpr int kFlagsCopied = 22902;      // Flags are copied instead.
constexpr int kMulticastMended = 23102;  // Two ranks with multicast hang in the first exchange before (issue 2241).

}  // namespace

std::string copy_engines_are_off(const ExchangeVersions& versions, const Environment& environment) {
  const auto value = [&](const char* name, const char* otherwise) {
    const char* const set = environment(name);
    return std::string_view(set == nullptr || *set == 0 ? otherwise : set);
  };
  const auto is = [&](const char* name, const char* wanted, const char* otherwise) {
    return value(name, otherwise) == wanted;
  };
  for (const char* const name : {"LOCKSTEP_COPY_ENGINES", "NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE"}) {
    if (is(name, "0", "1")) return std::string(name) + " is 0";
  }
  if (!value("LOCKSTEP_EXACT_ALLOCATIONS", "").empty()) return "LOCKSTEP_EXACT_ALLOCATIONS is set";
  if (!is("NCCL_CTA_POLICY", "2", "2") && !is("NCCL_CTA_POLICY", "ZERO", "2")) return "NCCL_CTA_POLICY is not 2";
  if (versions.nccl < kFirst) return versions.nccl == 0 ? "there is no NCCL" : "NCCL has them from 2.28.3 on";
  if (versions.cuda < kFirstCuda) return "the driver's CUDA is older than 12.5";
  if (versions.cuda >= kCudaWithoutPeer && versions.nccl < kFlagsCopied) {
    return "with a driver of CUDA 13.1 they need NCCL 2.29.2";
  }
  if (versions.nccl < kMulticastMended && !is("NCCL_NVLS_ENABLE", "0", "0")) {
    return "with NVLS they need NCCL 2.31.2";
  }
  return "";
}

}  // namespace lockstep
