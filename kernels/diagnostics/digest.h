// Digest of a tensor set, independent of order and sharding: arithmetic.md 1.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// sums[0] (lo) and sums[1] (hi) grow by the terms of this tensor, modulo 2^64.
struct Digest {
  static constexpr const char* kName = "digest";
  In<float> values;           // [rows, cols]; element index is row-major.
  Accum<std::uint64_t> sums;  // [1, 2]
  std::uint64_t first =
      0;  // Element index of the first value: these may be some rows of the tensor.
  std::uint64_t tensor = 0;  // kind * 2^32 + parameter index; kind 0 weight, 1 gradient, 2 m, 3 v,
                             // 5 scaling state of fp8.
};
void check(const Digest& op);
void run(HostQueue, const Digest& op);
void run(CudaQueue, const Digest& op);

}  // namespace lockstep
