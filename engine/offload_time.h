// How long segments and copies take by a model, so that a plan follows from the scenario alone: the products'
// arithmetic at the peak of an H200's units, copies at what its link was measured to carry. What is left out
// (attention's pairs, which depend on the documents, and ops that memory bounds) makes compute longer than the model
// says: copies are hidden at least as well.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/regions.h"

namespace lockstep {

struct OffloadPlan;

inline constexpr double kLinkBytesPerSecond = 55e9;  // Pinned memory, either way; docs/measurements.md.
inline constexpr double kTensorFlopPerSecond = 989e12, kFp32FlopPerSecond = 67e12;

inline double copy_seconds(std::int64_t bytes) { return static_cast<double>(bytes) / kLinkBytesPerSecond; }
// Of the forward pass, of each segment and of the head; a backward pass takes twice as long.
std::vector<double> forward_seconds(const Scenario& scenario, const std::vector<Segment>& segments);

// One microbatch with nothing else on the link.
struct OffloadForecast {
  double compute = 0;           // Forward and backward pass.
  double copies = 0;            // Either way.
  double stalled = 0;           // Compute waits for copies: what is not hidden.
  std::vector<double> awaited;  // Of each group: compute waits for its copy back.
  double hidden() const;        // Share of all copying, both ways, that costs no time.
};
OffloadForecast forecast(const OffloadPlan& plan);

}  // namespace lockstep
