// Ranks as threads over one device, of which exactly one runs at a time: engine/comm/baton.h with what each keeps of
// the device.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/comm/baton.h"
#include "engine/device/device.h"

namespace lockstep {

// Unwinds a thread whose run is over because of another. No std::exception: nobody but Turns should take it.
struct RankStopped {};

class Turns {
 public:
  // `ranks`: that of each thread.
  Turns(Device& device, std::vector<int> ranks, std::uint64_t seed)
      : device_(device), ranks_(std::move(ranks)), baton_(static_cast<int>(ranks_.size()), seed) {}

  // `body` on a thread each. Rethrows what the first of them threw, when all have ended.
  void run(const std::function<void(int thread)>& body);

  // Within `body`: when all have come. False, for one of them, if somebody has ended and will not come.
  bool meet(int thread);
  bool has_ended(int thread) { return baton_.has_ended(thread); }

 private:
  int rank_of(int thread) const { return ranks_[static_cast<std::size_t>(thread)]; }
  Device& device_;
  std::vector<int> ranks_;
  Baton baton_;
};

}  // namespace lockstep
