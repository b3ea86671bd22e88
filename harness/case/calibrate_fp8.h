// Random sums of a device's fp8 tensor cores against the scalar model of DOT8.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/device/backend.h"
#include "kernels/core/fp8.h"

namespace lockstep {

struct Fp8Difference {
  std::string family, types;
  std::int64_t row = 0, column = 0;  // The element of a product of that family.
  float got = 0, want = 0;
};
struct Fp8Calibration {
  std::int64_t sums = 0, differences = 0;
  std::optional<Fp8Difference> first;
};

// Tests at least `sums` sums of 288 places of every family of kernels/core/fp8_families.h, in all
// pairs of types. `run` is how many places of the model meet in one chain.
Fp8Calibration calibrate_fp8(Backend& backend, std::int64_t sums, std::uint64_t seed,
                             std::int64_t run = kFp8Run);

// One line: the family, the types, both results.
std::string text(const Fp8Difference& difference);
boost::json::object to_json(const Fp8Calibration& result);

}  // namespace lockstep
