#include "engine/device/copy_engines.h"

#include <cstdlib>
#include <string>

namespace lockstep {
namespace {

// From NCCL's sources (ce_coll.cc, enqueue.cc) and issues.
constexpr int kFirst = 22803;      // ncclAllGather and ncclAlltoAll by copy engines.
constexpr int kFirstCuda = 12050;  // For the driver, for them.
// From here on a stream writes no value to another GPU (issue 2052).
constexpr int kCudaWithoutPeer = 13010;
constexpr int kFlagsCopied = 22902;  // Flags are copied instead.
// Two ranks with multicast hang in the first exchange before (issue 2241).
constexpr int kMulticastMended = 23102;

}  // namespace

std::string copy_engines_are_off(const ExchangeVersions& versions, const Environment& environment) {
  // An empty variable counts as none, as NCCL has it.
  const auto value = [&](const char* name, const char* otherwise) {
    const char* const set = environment(name);
    return std::string(set == nullptr || *set == 0 ? otherwise : set);
  };
  const auto number = [&](const char* name, const char* otherwise) {  // As NCCL reads it.
    return std::strtoll(value(name, otherwise).c_str(), nullptr, 0);
  };
  const std::string wanted = value("LOCKSTEP_COPY_ENGINES", "1"),
                    level = value("NCCL_P2P_LEVEL", "SYS");
  if (wanted != "1") return "LOCKSTEP_COPY_ENGINES is " + wanted;
  for (const char* const name : {"NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE"}) {
    if (number(name, "1") == 0) return std::string(name) + " is 0";
  }
  // Windows do not ask these two from 2.28.7 on.
  if (number("NCCL_P2P_DISABLE", "0") != 0) return "NCCL_P2P_DISABLE is set";
  if (level == "LOC" || level == "0") return "NCCL_P2P_LEVEL is " + level;
  if (!value("LOCKSTEP_EXACT_ALLOCATIONS", "").empty()) return "LOCKSTEP_EXACT_ALLOCATIONS is set";
  if (number("NCCL_CTA_POLICY", "2") != 2 && value("NCCL_CTA_POLICY", "") != "ZERO")
    return "NCCL_CTA_POLICY is not 2";
  if (versions.nccl < kFirst)
    return versions.nccl == 0 ? "there is no NCCL" : "NCCL has them from 2.28.3 on";
  if (versions.cuda < kFirstCuda) return "the driver's CUDA is older than 12.5";
  if (versions.cuda >= kCudaWithoutPeer && versions.nccl < kFlagsCopied) {
    return "with a driver of CUDA 13.1 they need NCCL 2.29.2";
  }
  if (versions.nccl < kMulticastMended && number("NCCL_NVLS_ENABLE", "0") != 0) {
    return "with NVLS they need NCCL 2.31.2";
  }
  return "";
}

void set_where_unset(const char* name, const char* value) {
  const char* const set = std::getenv(name);
  ::setenv(name, value, set != nullptr && *set == 0);
}

}  // namespace lockstep
