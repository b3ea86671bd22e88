// How long segments and copies take by a model, so that a plan follows from the scenario alone. Rates are those at
// which H1's layers were measured on an H200 (docs/measurements.md), each with the ops that memory bounds counted to
// the product or the scan beside them: products alone reach 720 TFLOP/s, the scan 93. Attention's pairs, which depend
// on the documents, are left out: copies are hidden at least as well.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/regions.h"

namespace lockstep {

inline constexpr double kLinkBytesPerSecond = 50e9;  // Pinned memory, each way while the other is busy too.
inline constexpr double kTensorFlopPerSecond = 620e12, kFp32FlopPerSecond = 67e12;
inline constexpr double kScanFlopPerSecond = 65e12;
inline constexpr double kSlowedByCopies = 0.027;  // Compute beside copies both ways takes so much longer.

inline double copy_seconds(std::int64_t bytes) { return static_cast<double>(bytes) / kLinkBytesPerSecond; }
// Of the forward pass, of each segment and of the head; a backward pass takes twice as long.
std::vector<double> forward_seconds(const Scenario& scenario, const std::vector<Segment>& segments);

}  // namespace lockstep
