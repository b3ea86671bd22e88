// Pressure that a run puts on its own device to provoke races: delays on named streams, and memory
// without a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Delays every op, copy, fill and launch on streams with this name by 1 to `most` microseconds
// (turns, on the simulated device), log-uniform, also where a capture that began on another stream
// contains them. "graph" delays every op, copy and fill that is captured on any stream.
struct StreamDelay {
  std::string stream;
  std::int64_t most = 1;
  int rank = -1;  // For this rank alone; -1: of all.
};

struct Pressure {
  std::vector<StreamDelay> delays;
  std::uint64_t seed = 1;  // For the delays.
  // Device and pinned memory is a signalling NaN when it is allocated, and when it is freed. The
  // simulated device does both in any case.
  bool poison_fresh = false, poison_freed = false;
};

}  // namespace lockstep
