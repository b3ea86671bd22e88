// Floats as bits: what "equal" means here, and how a value is written in a report.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

bool is_nan_bits(float value);

// The first element whose bits differ or that is NaN on either side. Both spans have the same
// length.
std::optional<std::int64_t> first_mismatch(std::span<const float> got, std::span<const float> want);

// Distance in units of the last place: steps between the two on the line of all floats, on which -0
// lies one step below +0. Absent when one of them is NaN.
std::optional<std::int64_t> ulp_distance(float a, float b);

// The same on the line of all bf16 values. Absent also where one is no bf16 value.
std::optional<std::int64_t> bf16_ulp_distance(float a, float b);

// The shortest decimal that reads back equal, and the bits: "-0.1 0xbdcccccd".
std::string value_text(float value);

}  // namespace lockstep
