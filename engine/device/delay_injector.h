// Decides how long the device waits before the next work of a stream, where a run is put under
// pressure by delays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/pressure.h"

namespace lockstep {

class DelayInjector {
 public:
  DelayInjector(std::vector<StreamDelay> delays, std::uint64_t seed)
      : delays_(std::move(delays)), applied_(delays_.size()), state_(seed) {}

  // Streams are numbered in the order of these calls. `rank` creates the stream.
  void created_stream(std::string name, int rank);

  // The work that a delay may come before. `forked`: captured, on a stream other than the one that
  // captures.
  struct Work {
    int stream;
    int rank;
    bool captured, forked;
  };
  // The length of the delay before the work; 0: none.
  std::int64_t before(const Work& work);

  bool is_idle() const { return delays_.empty(); }
  // For each requested delay, whether any call waited for it.
  const std::vector<bool>& applied() const { return applied_; }

 private:
  struct Lane {
    std::string name;
    std::int64_t most;
  };
  std::int64_t most(std::string_view stream, int rank) const;

  std::vector<StreamDelay> delays_;
  std::vector<bool> applied_;
  std::uint64_t state_;
  std::vector<Lane> streams_;
};

}  // namespace lockstep
