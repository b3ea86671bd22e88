// Counts the calls that random cases make at a device, which cost time whatever their arithmetic.
// On a GPU that several workers share, a small case waits for these, not for kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct DispatchCount {
  std::string call;
  std::int64_t median = 0, p95 = 0, most = 0;  // Per case.
};

// Counts over the first `cases` of a campaign, as a GPU would run them: the observed run and one
// unobserved run.
std::vector<DispatchCount> count_dispatch(std::uint64_t campaign_seed, std::int64_t cases);

}  // namespace lockstep
