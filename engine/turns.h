// Threads over one device, of which exactly one runs at a time: engine/baton.h with what each keeps of the device.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/baton.h"
#include "engine/device.h"

namespace lockstep {

// Unwinds a thread whose run is over because of another. No std::exception: nobody but Turns should take it.
struct RankStopped {};

class Turns {
 public:
  Turns(Device& device, int size, std::uint64_t seed) : device_(device), size_(size), baton_(size, seed) {}

  // `body` on a thread each. Rethrows what the first of them threw, when all have ended.
  void run(const std::function<void(int thread)>& body);

  // Within `body`: when all have come. False, for one of them, if somebody has ended and will not come.
  bool meet(int thread);
  bool has_ended(int thread) { return baton_.has_ended(thread); }

 private:
  Device& device_;
  int size_;
  Baton baton_;
};

}  // namespace lockstep
