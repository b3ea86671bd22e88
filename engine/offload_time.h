// How long segments and copies take by a model, so that a plan follows from the scenario alone: the products'
// arithmetic and copies at the rates that an H200 was measured to have (docs/measurements.md). What is left out
// (attention's pairs, which depend on the documents, and ops that memory bounds) makes compute longer than the model
// says: copies are hidden at least as well.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/regions.h"

namespace lockstep {

inline constexpr double kLinkBytesPerSecond = 50e9;  // Pinned memory, each way while the other is busy too.
inline constexpr double kTensorFlopPerSecond = 620e12, kFp32FlopPerSecond = 67e12;
inline constexpr double kScanFlopPerSecond = 65e12;

inline double copy_seconds(std::int64_t bytes) { return static_cast<double>(bytes) / kLinkBytesPerSecond; }
// Of the forward pass, of each segment and of the head; a backward pass takes twice as long.
std::vector<double> forward_seconds(const Scenario& scenario, const std::vector<Segment>& segments);

}  // namespace lockstep
