// Whether NCCL moves what ranks exchange by copy engines, which take no multiprocessor from
// compute, or by kernels.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

struct ExchangeVersions {
  int nccl = 0;  // As ncclGetVersion() says it: 22809 is 2.28.9.
  int cuda = 0;  // That the driver knows, as cudaDriverGetVersion() says it: 13000 is 13.0.
};

// Beyond, large copies are cut by flags, of which there may be an odd number, and a graph that
// holds it hangs.
inline constexpr int kCopyEnginesMostRanks = 8;

// Null where a variable is not set.
using Environment = std::function<const char*(const char* name)>;

// "", or why it takes kernels, by versions and variables alone. LOCKSTEP_COPY_ENGINES asks for
// kernels by anything but 1 or nothing. `NCCL_NVLS_ENABLE` that is not set counts as 0, since this
// program sets it so.
std::string copy_engines_are_off(const ExchangeVersions& versions, const Environment& environment);

// The process's own variable: keeps what it says, but for nothing.
void set_where_unset(const char* name, const char* value);

}  // namespace lockstep
