// Cooperative threads, one for each rank, over one device: exactly one runs at a time
// (engine/comm/turnstile.h), and each finds the per-rank state of the device as it left it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/comm/turnstile.h"
#include "engine/device/device.h"
#include "kernels/core/at.h"

namespace lockstep {

// Unwinds a thread whose run is over because of another. It is no std::exception, so that only
// CooperativeThreads catches it.
struct RankStopped {};

class CooperativeThreads {
 public:
  // `ranks` has the rank of each thread.
  CooperativeThreads(Device& device, std::vector<int> ranks, std::uint64_t seed)
      : device_(device),
        ranks_(std::move(ranks)),
        turnstile_(static_cast<int>(ranks_.size()), seed) {}

  // Runs `body` once on each thread. When all have ended, rethrows the first exception.
  void run(const std::function<void(int thread)>& body);

  // Called within `body`; returns when all threads have arrived. False, in one of them, if a thread
  // has ended and will not arrive.
  bool arrive_and_wait(int thread);
  // Called within `body`; returns when `holds`. False, in one of them, if no thread will make it
  // so.
  bool wait_until(int thread, const std::function<bool()>& holds);
  bool has_ended(int thread) { return turnstile_.has_ended(thread); }

 private:
  bool wait(int thread, const std::function<Turnstile::Outcome()>& turnstile);
  int rank_of(int thread) const { return at(ranks_, thread); }
  Device& device_;
  std::vector<int> ranks_;
  Turnstile turnstile_;
};

}  // namespace lockstep
