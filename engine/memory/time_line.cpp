#include "engine/memory/time_line.h"

#include <algorithm>

namespace lockstep {

TimeLine::TimeLine(const std::vector<Chunk>& chunks) {
  int arrival = -1;
  for (const Chunk& chunk : chunks) {
    arrivals_.push_back(arrival);
    arrival += chunk.end_segment - chunk.first_segment + 2;
  }
  arrivals_.push_back(arrival);
}

int TimeLine::step(int chunk, int own) const {
  const int head = segments(chunk);
  const auto forward = [&](int own_forward) { return arrival(chunk) + own_forward + 1; };
  return own <= head ? forward(own) : backward(forward(2 * head + 1 - own));
}

TimeLine::Place TimeLine::place(int step) const {
  const int forward = is_forward(step) ? step : backward(step);
  const auto behind = std::upper_bound(arrivals_.begin(), arrivals_.end(), forward);
  const int chunk = static_cast<int>(behind - arrivals_.begin()) - 1;
  const int own = forward - arrival(chunk) - 1;
  return {chunk, is_forward(step) ? own : 2 * segments(chunk) + 1 - own};
}

}  // namespace lockstep
