#include "engine/device/delay_injector.h"

#include <algorithm>

#include "engine/device/log_uniform.h"
#include "kernels/core/at.h"
#include "kernels/core/contract.h"

namespace lockstep {
namespace {

bool concerns(const StreamDelay& delay, std::string_view stream, int rank) {
  return delay.stream == stream && (delay.rank < 0 || delay.rank == rank);
}

}  // namespace

void DelayInjector::created_stream(std::string name, int rank) {
  const std::int64_t longest = most(name, rank);
  streams_.push_back({std::move(name), longest});
}

std::int64_t DelayInjector::most(std::string_view stream, int rank) const {
  std::int64_t longest = 0;
  for (const StreamDelay& delay : delays_) {
    if (concerns(delay, stream, rank)) longest = std::max(longest, delay.most);
  }
  return longest;
}

// A launch is delayed as a call of its stream; the other streams of a graph do nothing but what was
// captured.
std::int64_t DelayInjector::before(const Work& work) {
  const Lane& lane = at(streams_, work.stream);
  const std::int64_t longest =
      work.captured ? std::max(most("graph", work.rank), work.forked ? lane.most : 0) : lane.most;
  if (longest == 0) return 0;
  for (std::size_t i = 0; i < delays_.size(); ++i) {
    const bool by_stream =
        (!work.captured || work.forked) && concerns(delays_[i], lane.name, work.rank);
    if (by_stream || (work.captured && concerns(delays_[i], "graph", work.rank)))
      applied_[i] = true;
  }
  state_ += 0x9E3779B97F4A7C15u;
  return log_uniform(mix64(state_), longest);
}

}  // namespace lockstep
