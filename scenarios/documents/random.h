// Counted random draws of the data source: a draw is a function of its place, so any step can be
// read in any order.
#pragma once

#include <cstdint>

namespace lockstep {

// The purpose of a draw. Every purpose has draws of its own.
enum class Purpose : std::uint32_t { token = 1, evaluation_token, mask, evaluation_mask, length };

// The place of a draw: a document (by its slot) of a global microbatch of a step.
struct DrawPlace {
  std::int64_t step = 0, microbatch = 0, document = 0;
};

// One word for each (seed, purpose, place, index). Philox4x32-10 keyed by the seed; words are
// equally likely.
std::uint32_t draw(std::int64_t seed, Purpose purpose, const DrawPlace& place, std::int64_t index);

// A number in 0..count-1, count up to 2^32. Fixed point: the choice is the same on every machine.
inline std::int64_t scaled(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(count)) >> 32);
}

// Whether an event of probability millionths / 10^6 happens, exact in integers: never for 0, always
// for 10^6.
inline bool happens(std::uint32_t word, std::int64_t millionths) {
  return std::uint64_t{word} * 1'000'000 < (static_cast<std::uint64_t>(millionths) << 32);
}

}  // namespace lockstep
