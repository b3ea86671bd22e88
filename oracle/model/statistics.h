// The load of a layer's experts in one microbatch.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::oracle {

template <class Real>
struct ExpertStatistics {
  int layer = -1;                     // Symbol index.
  Real aux_loss = 0, z_loss = 0;      // Not in the loss, but in the gradients.
  std::vector<std::int64_t> chosen;   // Per expert: rows of documents that chose it, n_e.
  std::vector<std::int64_t> dropped;  // Per expert: those of them that were dropped.
};

}  // namespace lockstep::oracle
