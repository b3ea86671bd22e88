// The initial values of a parameter (arithmetic.md 0.5).
#pragma once

#include <cstdint>

namespace lockstep {

enum class Init : std::int32_t { zero, one, normal, conv_weight, dt_bias, a_log };

}  // namespace lockstep
