// Initial weights, arithmetic.md 0.4 and 0.5: a function of seed, parameter index and element.
#pragma once

#include <vector>

#include "oracle/arithmetic/mutations.h"
#include "oracle/model/layout.h"

namespace lockstep::oracle {

// The four normal numbers of elements 4k..4k+3.
void normal_block(const std::uint32_t words[4], float std, float out[4]);

std::vector<float> initial_weight(const ParameterLayout& parameter, std::uint32_t index,
                                  std::int64_t layers, std::int64_t seed, Mutant mutant);

}  // namespace lockstep::oracle
