#include "harness/checker/undefined.h"

#include "kernels/diagnostics/poison.h"

namespace lockstep {

bool is_poison(const Work& work) { return equal_names(work.name, PoisonMemory::kName); }

void Undefined::erase(std::int64_t begin, std::int64_t end) {
  auto at = pieces_.upper_bound(begin);
  if (at != pieces_.begin()) --at;
  while (at != pieces_.end() && at->first < end) {
    const std::int64_t first = at->first;
    const Piece piece = at->second;
    if (piece.end <= begin) {
      ++at;
      continue;
    }
    at = pieces_.erase(at);
    if (first < begin) pieces_.insert_or_assign(first, Piece{begin, piece.by});
    if (piece.end > end) pieces_.insert_or_assign(end, Piece{piece.end, piece.by});
  }
}

void Undefined::erase(const Box& box) {
  for (std::int64_t i = 0; i < box.rows && !pieces_.empty(); ++i) {
    const std::int64_t begin = box.base + i * box.pitch;
    erase(begin, begin + box.width);
  }
}

void Undefined::set(const Box& box, const std::optional<Work>& by) {
  // The scratch of an op has the bytes of the op before it, mostly.
  if (const auto same = pieces_.find(box.base);
      box.rows == 1 && same != pieces_.end() && same->second.end == box.end()) {
    same->second.by = by;
    return;
  }
  erase(box);
  for (std::int64_t i = 0; i < box.rows; ++i) {
    const std::int64_t begin = box.base + i * box.pitch;
    pieces_.insert_or_assign(begin, Piece{begin + box.width, by});
  }
}

std::optional<Undefined::Cause> Undefined::first_in(const Box& box) const {
  for (std::int64_t i = 0; i < box.rows && !pieces_.empty(); ++i) {
    const std::int64_t begin = box.base + i * box.pitch;
    auto at = pieces_.upper_bound(begin);
    if (at != pieces_.begin() && std::prev(at)->second.end > begin)
      return Cause{begin, std::prev(at)->second.by};
    if (at != pieces_.end() && at->first < begin + box.width)
      return Cause{at->first, at->second.by};
  }
  return std::nullopt;
}

}  // namespace lockstep
