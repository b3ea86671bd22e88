// How long segments and copies take by a model, so that a plan follows from the scenario alone. Rates are those at
// which H1's layers were measured on an H200 (docs/measurements.md), each with the ops that memory bounds counted to
// the product or the scan beside them: products alone reach 720 TFLOP/s, the scan 93. A backward pass takes twice as
// long as the forward pass, attention's 2.5 times, the scan's three times. Documents are not known when a plan is made:
// attention counts pairs of documents of 1,024 rows. The optimizer is left out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/regions.h"

namespace lockstep {

// Pinned memory, one way: while the other is idle, and while it is busy too.
inline constexpr double kLinkAlone = 54e9, kLinkBoth = 47e9;
inline constexpr double kTensorFlopPerSecond = 620e12, kFp32FlopPerSecond = 67e12;
inline constexpr double kScanFlopPerSecond = 65e12;
inline constexpr double kAttentionOfProducts = 0.33;  // Attention's rate, as a share of theirs.
inline constexpr std::int64_t kRowsOfADocument = 1024;
inline constexpr double kSlowedByCopies = 0.027;  // Compute beside copies both ways takes so much longer.

inline double copy_seconds(std::int64_t bytes, bool both = true) {
  return static_cast<double>(bytes) / (both ? kLinkBoth : kLinkAlone);
}
// Of each segment and of the head.
struct PassSeconds {
  std::vector<double> forward, backward;
};
PassSeconds pass_seconds(const Scenario& scenario, const std::vector<Segment>& segments);

}  // namespace lockstep
