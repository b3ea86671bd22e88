// The least work of an op: the arithmetic of products, and the bytes that go in and out.
#pragma once

#include <string>

#include "kernels/submission/submission.h"

namespace lockstep {

enum class Bound : std::uint8_t { product, attention, scan, bandwidth };

struct OpWork {
  Bound bound = Bound::bandwidth;
  double flop = 0;   // Bound bandwidth: not counted.
  double bytes = 0;  // Every operand once, what is accumulated twice, scratch never; of an
                     // embedding the tokens' rows.
};

// Sizes of the pack that an op works on.
struct PackWork {
  double causal_pairs = 0;
  std::int64_t tokens = 0;  // Different ones.
};
OpWork work_of(const Submission& op, const PackWork& pack);

// The op with its shapes, "linear_forward 8192x2048 10304x2048": equal for ops that take the same
// time.
std::string signature(const Submission& op);

}  // namespace lockstep
