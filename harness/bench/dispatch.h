// The calls that random cases make at a device: the calls that each costs, whatever its arithmetic.
// On a GPU that several workers share it is these, not kernels, that a small case waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct DispatchCount {
  std::string call;
  std::int64_t median = 0, p95 = 0, most = 0;  // For a case.
};

// Over the first `cases` of a campaign, as a GPU would run them: the run that is looked at, and one
// that is not.
std::vector<DispatchCount> count_dispatch(std::uint64_t campaign_seed, std::int64_t cases);

}  // namespace lockstep
