#include "harness/access/shadow.h"

#include <algorithm>

namespace lockstep {

std::size_t Touches::first_to_reach(std::int64_t byte, std::size_t from) const {
  const auto reaches = [](std::int64_t wanted, const Extent& one) { return wanted < one.reach; };
  const auto behind = extents_.begin() + static_cast<std::ptrdiff_t>(from);
  return std::upper_bound(behind, extents_.end(), byte, reaches) - extents_.begin();
}

void Touches::collect(const Touch& now, const Clock& clock, std::vector<Touch>& found) const {
  const auto conflicts = [&](const Touch& earlier) {
    return !is_complete(earlier, clock) && overlap(earlier.box, now.box);
  };
  for (std::size_t i = find(now, conflicts); i < touches_.size(); i = find(now, conflicts, i + 1))
    found.push_back(touches_[i]);
}

void Touches::replace_among_several(const Touch& by, const Clock& clock) {
  const auto covered = [&](const Touch& old) { return covers(by, old, clock); };
  const std::size_t first = find(by, covered);
  if (first < touches_.size() && touches_[first].box == by.box) {
    touches_[first] = by;
    return forget(find(by, covered, first + 1), by, clock);
  }
  forget(first, by, clock);
  if (touches_.empty()) return touches_.push_back(by);
  if (touches_.size() == 1) extents_ = {extent_of(touches_.front())};
  const auto precedes = [](std::int64_t byte, const Extent& one) { return byte < one.begin; };
  const auto place = std::upper_bound(extents_.begin(), extents_.end(), by.box.base, precedes);
  const std::ptrdiff_t number = place - extents_.begin();
  extents_.insert(place, extent_of(by));
  touches_.insert(touches_.begin() + number, by);
  set_reaches(number);
}

// `first`: the first that is covered, or how many there are.
void Touches::forget(std::size_t first, const Touch& by, const Clock& clock) {
  if (first == touches_.size()) return;
  const auto covered = [&](const Touch& old) { return covers(by, old, clock); };
  std::size_t kept = first;
  for (std::size_t i = first; i < touches_.size();) {
    // The accesses between one that is forgotten and the next move up.
    const std::size_t next = find(by, covered, i + 1);
    for (++i; i < next; ++i, ++kept) {
      touches_[kept] = touches_[i];
      extents_[kept] = extents_[i];
    }
  }
  touches_.erase(touches_.begin() + static_cast<std::ptrdiff_t>(kept), touches_.end());
  if (kept < 2) return extents_.clear();
  extents_.resize(kept);
  set_reaches(first);
}

void Touches::set_reaches(std::size_t first) {
  std::int64_t reach = first == 0 ? 0 : extents_[first - 1].reach;
  for (std::size_t i = first; i < extents_.size(); ++i) {
    reach = std::max(reach, extents_[i].end);
    extents_[i].reach = reach;
  }
}

std::vector<Touch> Shadow::unordered(const Touch& now, const Clock& clock) const {
  std::vector<Touch> found;
  writes_.collect(now, clock, found);
  if (writes(now.mode)) reads_.collect(now, clock, found);
  return found;
}

void Shadow::clear() {
  writes_ = {};
  reads_ = {};
}

}  // namespace lockstep
