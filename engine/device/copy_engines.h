// Whether NCCL moves what ranks exchange by copy engines, which take no multiprocessor from
// compute, or by kernels.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

struct ExchangeVersions {
  int nccl = 0;  // In ncclGetVersion()'s form: 22809 is 2.28.9.
  int cuda = 0;  // The driver's, in cudaDriverGetVersion()'s form: 13000 is 13.0.
};

// Beyond, large copies are cut by flags, of which there may be an odd number, and a graph that
// holds it hangs.
inline constexpr int kCopyEnginesMostRanks = 8;

// Null where a variable is not set.
using Environment = std::function<const char*(const char* name)>;

// Returns "", or why exchanges use kernels, by versions and variables alone. LOCKSTEP_COPY_ENGINES
// selects kernels by any value but 1 or an empty one. An unset `NCCL_NVLS_ENABLE` counts as 0,
// since this program sets it so.
std::string copy_engines_are_off(const ExchangeVersions& versions, const Environment& environment);

// Sets a variable of this process's environment, unless it has a value.
void set_where_unset(const char* name, const char* value);

}  // namespace lockstep
