// Initial values of a parameter: arithmetic.md 0.4 and 0.5.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/init.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

struct Initialize {
  static constexpr const char* kName = "initialize";
  Out<float> w;  // [rows, cols]; a 1-D parameter is [1, n]. Linear element index is row-major.
  std::int64_t first = 0;  // Element index of w's first: w may be some rows of the parameter.
  Init kind = Init::zero;
  float std = 0;                // normal: s or s'.
  std::int32_t width = 0;       // conv_weight: w.
  std::uint32_t parameter = 0;  // Index of arithmetic.md 0.5.
  std::uint32_t seed_low = 0;
  std::uint32_t seed_high = 0;
};
void check(const Initialize& op);
void run(HostQueue, const Initialize& op);
void run(CudaQueue, const Initialize& op);

}  // namespace lockstep
