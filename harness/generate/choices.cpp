#include "harness/generate/choices.h"

namespace lockstep {

// splitmix64 (Steele, Lea, Flood 2014): one well mixed word per counter value.
std::uint64_t Choices::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t Choices::draw(std::uint64_t bound) {
  std::uint64_t value = 0;
  if (!replay_) {
    value = next() % bound;
  } else if (taken_.size() < given_.size()) {
    value = given_[taken_.size()] % bound;
  }
  taken_.push_back(value);
  return value;
}

std::int64_t Choices::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(high - low) + 1));
}

}  // namespace lockstep
