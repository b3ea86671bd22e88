// Random dots of a device's tensor cores against the scalar model of FDA16.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <optional>
#include <string>

#include "engine/device/backend.h"
#include "kernels/core/fda16.h"

namespace lockstep {

struct DotDifference {
  std::int64_t dot = 0;  // The number of the dot product, counted from 0.
  std::string family;
  std::array<float, 16> a, b;
  float c = 0, got = 0, want = 0;
};
struct Calibration {
  std::int64_t dots = 0, differences = 0;
  std::optional<DotDifference> first;
};

// The constants of the device's tensor cores; none where they are not known. The simulated device
// has the contract's.
std::optional<TensorCore> constants_of(const DeviceInfo& device);
std::string architecture_of(const DeviceInfo& device);

// Tests at least `dots` dot products of the adversarial families in turn
// (kernels/core/fda_families.h), on every core of the host.
Calibration calibrate(Backend& backend, const TensorCore& model, std::int64_t dots,
                      std::uint64_t seed);

// Several lines: the family, the operands, both results.
std::string text(const DotDifference& difference);
boost::json::object to_json(const Calibration& result, const std::string& architecture,
                            const TensorCore& model);

}  // namespace lockstep
