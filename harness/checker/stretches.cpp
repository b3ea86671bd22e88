#include "harness/checker/stretches.h"

#include <algorithm>
#include <string_view>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Pressure is put before a stretch from outside, and belongs to it.
bool is_pressure(const Work& work) { return std::string_view(work.place.part) == "padding"; }

bool same_launch(const Work& a, const Work& b) {
  return a.graph == b.graph && a.launch == b.launch;
}

}  // namespace

bool is_update(const Work& work) { return std::string_view(work.name) == "adamw"; }

// A layer, or what a graph may hold of a block; the embedding and the head of a pass; what lies
// outside of passes.
bool Stretches::same_place(const StepLocation& a, const StepLocation& b) const {
  const auto layer = [this](const StepLocation& place) {
    return place.layer < 0 ? place.layer : lockstep::at(layers_, place.layer);
  };
  return a.step == b.step && a.microbatch == b.microbatch && layer(a) == layer(b) &&
         a.backward == b.backward && a.rank == b.rank;
}

std::int64_t Stretches::group(int thread) const {
  const auto found = group_.find(thread);
  return found == group_.end() ? 0 : found->second;
}

bool Stretches::goes_on(int thread, const Work& work, bool in_groups) const {
  const auto found = all_.find(thread);
  if (found == all_.end()) return false;
  const Stretch& last = found->second.back();
  if (is_pressure(last.ends_with)) return true;
  // A waiter for an update waits for that of its own weight alone.
  if (is_update(last.ends_with) || is_update(work)) return false;
  return !is_pressure(work) && same_place(last.place, work.place) &&
         same_launch(last.ends_with, work) && (!in_groups || last.group == group(thread));
}

Stretch& Stretches::add(int thread, std::uint64_t time, const Work& work, bool in_groups,
                        const std::string& stream) {
  const bool goes_on = this->goes_on(thread, work, in_groups);
  std::vector<Stretch>& list = all_[thread];
  if (!goes_on) {
    list.push_back({.place = work.place,
                    .first = time,
                    .needed = {},
                    .has = {},
                    .doubted = {},
                    .forked = {},
                    .begins_with = work,
                    .ends_with = work,
                    .stream = stream,
                    .group = in_groups ? group(thread) : -1});
  }
  Stretch& stretch = list.back();
  stretch.place = work.place;
  stretch.ends_with = work;
  stretch.last = time;
  return stretch;
}

Stretch* Stretches::last(int thread) {
  const auto found = all_.find(thread);
  return found == all_.end() ? nullptr : &found->second.back();
}

std::int64_t Stretches::index(int thread, std::uint64_t time) const {
  const std::vector<Stretch>& list = all_.at(thread);
  const auto behind =
      std::upper_bound(list.begin(), list.end(), time,
                       [](std::uint64_t wanted, const Stretch& one) { return wanted < one.first; });
  return behind - list.begin() - 1;
}

const Stretch& Stretches::at(int thread, std::uint64_t time) const {
  return lockstep::at(all_.at(thread), index(thread, time));
}

Clock Stretches::needed_by_compute(const StepLocation& place) const {
  Clock needed;
  for (const auto& [thread, list] : all_) {
    for (const Stretch& one : list) {
      if (one.stream == "compute" && same_place(one.place, place))
        needed.join(one.doubted ? *one.doubted : one.needed);
    }
  }
  return needed;
}

Clock Stretches::whole_ones(Clock clock) const {
  for (const auto& [thread, list] : all_) {
    const std::uint64_t time = clock.at(thread);
    if (time < list.front().first) continue;
    const Stretch& part = lockstep::at(list, index(thread, time));
    if (part.group < 0 && time < part.last) clock.forget_behind(thread, part.first - 1);
  }
  return clock;
}

const Stretch& Stretches::waited_for(int thread, std::uint64_t time, const Work& waiter) const {
  const std::vector<Stretch>& list = all_.at(thread);
  std::int64_t i = index(thread, time);
  const Stretch& own = lockstep::at(list, i);
  const bool launched = own.ends_with.graph >= 0 && !same_launch(own.ends_with, waiter);
  const auto together = [&](const Stretch& next) {
    return (own.group >= 0 && next.group == own.group) ||
           (launched && same_launch(next.ends_with, own.ends_with));
  };
  while (i + 1 < std::ssize(list) && together(lockstep::at(list, i + 1))) ++i;
  return lockstep::at(list, i);
}

}  // namespace lockstep
