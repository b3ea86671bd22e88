// How long segments and copies take by a model, so that a plan follows from the scenario alone. Rates are those at
// which H1's layers were measured on an H200 (docs/measurements.md), each with the ops that memory bounds counted to
// the product or the scan beside them: products alone reach 720 TFLOP/s, the scan 93. A backward pass takes twice as
// long as the forward pass, the scan's three times. Attention's pairs, which depend on the documents, are left out:
// copies are hidden at least as well.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/regions.h"

namespace lockstep {

// Pinned memory, over steps in which the other way was busy for a part of the time.
inline constexpr double kToHostBytesPerSecond = 53e9, kToDeviceBytesPerSecond = 49e9;
inline constexpr double kTensorFlopPerSecond = 620e12, kFp32FlopPerSecond = 67e12;
inline constexpr double kScanFlopPerSecond = 65e12;
inline constexpr double kSlowedByCopies = 0.027;  // Compute beside copies both ways takes so much longer.

inline double seconds_out(std::int64_t bytes) { return static_cast<double>(bytes) / kToHostBytesPerSecond; }
inline double seconds_back(std::int64_t bytes) { return static_cast<double>(bytes) / kToDeviceBytesPerSecond; }
// Of each segment and of the head.
struct PassSeconds {
  std::vector<double> forward, backward;
};
PassSeconds pass_seconds(const Scenario& scenario, const std::vector<Segment>& segments);

}  // namespace lockstep
