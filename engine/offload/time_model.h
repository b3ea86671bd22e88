// A model of how long segments and copies take, so that the plan follows from the scenario alone:
//
//   copy     = bytes / link rate
//   forward  = products / kTensorFlopPerSecond + scan / kScanFlopPerSecond
//            + attention / (kAttentionOfProducts * kTensorFlopPerSecond)
//   backward = 2 x products + 3 x scan + 2.5 x attention
//
// with operations in the numerators; fp32 has kFp32FlopPerSecond in place of kTensorFlopPerSecond.
// The rates were measured for H1's layers on an H200 (docs/measurements.md) and include the
// memory-bound ops beside each product or scan: products alone reach 720 TFLOP/s, the scan 93.
// Documents are not known when a plan is made, so attention assumes documents of kRowsOfADocument
// rows. The optimizer is left out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/regions.h"

namespace lockstep {

// Bytes a second between pinned and device memory, one way: while the other way is idle, and while
// it is busy too.
inline constexpr double kLinkAlone = 54e9, kLinkBoth = 47e9;
inline constexpr double kTensorFlopPerSecond = 620e12, kFp32FlopPerSecond = 67e12;
inline constexpr double kScanFlopPerSecond = 65e12;
// Attention's rate as a share of the products' rate.
inline constexpr double kAttentionOfProducts = 0.33;
inline constexpr double kBackwardOfProducts = 2, kBackwardOfAttention = 2.5, kBackwardOfScan = 3;
inline constexpr std::int64_t kRowsOfADocument = 1024;
// Compute takes this share longer beside copies both ways.
inline constexpr double kSlowedByCopies = 0.027;

enum class Link : std::uint8_t { alone, both_ways };
inline double copy_seconds(std::int64_t bytes, Link link = Link::both_ways) {
  return static_cast<double>(bytes) / (link == Link::both_ways ? kLinkBoth : kLinkAlone);
}

// One entry for each segment, and one for the head, 0 where it lies elsewhere.
struct PassSeconds {
  std::vector<double> forward, backward;
};
PassSeconds pass_seconds(const Scenario& scenario, const std::vector<Segment>& segments,
                         bool has_head);

}  // namespace lockstep
