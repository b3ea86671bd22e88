// Random words and drawn lengths, computed from docs/scenario-reference.md 7 alone.
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep::recount {

enum class Drawn : std::uint32_t { token = 1, evaluation_token, mask, evaluation_mask, length };

struct Place {
  std::int64_t step = 0, microbatch = 0, document = 0;  // The microbatch's global number.
};

std::uint32_t word(std::int64_t seed, Drawn purpose, const Place& place, std::int64_t index);
// One of 0..count-1.
std::int64_t choose(std::uint32_t word, std::int64_t count);
bool happens(std::uint32_t word, Ratio chance);

// Lengths of the documents of one pack, kind distribution.
MicrobatchLengths lengths_of_pack(const Scenario::Data& data, std::int64_t step,
                                  std::int64_t microbatch);

}  // namespace lockstep::recount
