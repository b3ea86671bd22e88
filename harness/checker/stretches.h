// The items of a run in stretches: what the engine puts on a stream between two chances to wait. An
// edge cannot be finer than that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/access/clock.h"
#include "harness/access/touch.h"

namespace lockstep {

struct Stretch {
  StepLocation place;
  std::uint64_t first = 0, last = 0;  // Times of its thread.
  Clock needed, has;                  // Its last item so far has these.
  std::optional<Clock> doubted;       // `needed` before a judge added what it has beyond.
  // A gather behind updates: whether its rank updated what it gives, and what precedes it there.
  bool gathers_own_update = false;
  Clock forked;
  Work begins_with, ends_with;
  std::string stream;
  // Copies or exchanges up to a record are a group, counted by thread; -1: compute's.
  std::int64_t group = -1;
};

// An update of one weight by the optimizer is a stretch by itself.
bool is_update(const Work& work);

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
  // All that compute needs in that place, as far as it is known.
  Clock needed_by_compute(const StepLocation& place) const;
  // Without the stretches of compute that the clock knows a part of.
  Clock whole_ones(Clock clock) const;
  // A waiter for an item of that time has waited for all up to the end of this one: of its
  // stretch, of its group, and from outside of it of its launch.
  const Stretch& waited_for(int thread, std::uint64_t time, const Work& waiter) const;

 private:
  bool same_place(const StepLocation& a, const StepLocation& b) const;
  std::int64_t index(int thread, std::uint64_t time) const;

  const std::vector<int> layers_;
  std::map<int, std::vector<Stretch>> all_;  // By thread.
  std::map<int, std::int64_t> group_;        // By thread, the current one.
};

}  // namespace lockstep
