// The 64-bit hashing and drawing of schedule exploration: splitmix64.
#pragma once

#include <cstdint>

namespace lockstep {

constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Depends on the order of its arguments.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return scramble((hash ^ scramble(value + 0x9e3779b97f4a7c15u)) + 0x9e3779b97f4a7c15u);
}

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t draw() { return scramble(state_ += 0x9e3779b97f4a7c15u); }
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep
