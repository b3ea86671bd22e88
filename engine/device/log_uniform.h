// The duration of an adversarial delay, log-uniform: as often between 1 and 2 as between 512 and
// 1024.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// 1 to `most` (at least 1), log-uniform to within a power of two, from 64 random bits.
constexpr std::int64_t log_uniform(std::uint64_t draw, std::int64_t most) {
  const auto powers = static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(most)));
  const std::uint64_t low = std::uint64_t{1} << (draw % powers);
  const std::uint64_t value = low + (draw / powers) % low;
  return static_cast<std::int64_t>(value) < most ? static_cast<std::int64_t>(value) : most;
}

}  // namespace lockstep
