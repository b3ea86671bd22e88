// The items of a run in stretches: what the engine puts on a stream between two chances to wait. An
// edge cannot be finer than that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/access/clock.h"
#include "harness/access/touch.h"

namespace lockstep {

struct Stretch {
  StepLocation place;
  std::uint64_t first = 0, last = 0;  // Times of its thread.
  Clock needed, has;                  // Its last item so far has these.
  Work begins_with, ends_with;
  std::string stream;
  // Copies or exchanges up to a record are a group, counted by thread; -1: compute's.
  std::int64_t group = -1;
};

class Stretches {
 public:
  // `layers`: the first layer of the stretch that each layer is in.
  explicit Stretches(std::vector<int> layers) : layers_(std::move(layers)) {}

  void end_group(int thread) { ++group_[thread]; }
  std::int64_t group(int thread) const;
  // Whether the work goes on with the thread's last stretch.
  bool goes_on(int thread, const Work& work, bool in_groups) const;
  // The stretch of an item of that time, the thread's last one.
  Stretch& add(int thread, std::uint64_t time, const Work& work, bool in_groups,
               const std::string& stream);
  Stretch* last(int thread);
  const std::map<int, std::vector<Stretch>>& all() const { return all_; }
  const Stretch& at(int thread, std::uint64_t time) const;
  // A waiter for an item of that time has waited for this: all of its stretch, of its
  // group, and from outside of it of its launch.
  const Clock& waited_for(int thread, std::uint64_t time, const Work& waiter) const;

 private:
  bool same_place(const StepLocation& a, const StepLocation& b) const;
  std::int64_t index(int thread, std::uint64_t time) const;

  const std::vector<int> layers_;
  std::map<int, std::vector<Stretch>> all_;  // By thread.
  std::map<int, std::int64_t> group_;        // By thread, the current one.
};

}  // namespace lockstep
