// Steps of the tensor core by themselves, for calibration: what the machine gives, to be held
// against the model.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

inline constexpr std::int64_t kDotRows = 16, kDotColumns = 8, kDotDepth = 16;

// d[16t + i, j] = FDA16(a[16t + i, 0..15], b[8t + j, 0..15], c[16t + i, j]) for every tile t.
struct TensorCoreDots {
  static constexpr const char* kName = "tensor_core_dots";
  In<bf16> a;    // [16 tiles, 16]
  In<bf16> b;    // [8 tiles, 16]
  In<float> c;   // [16 tiles, 8]
  Out<float> d;  // [16 tiles, 8]
};
void check(const TensorCoreDots& op);
void run(HostQueue, const TensorCoreDots& op);
void run(CudaQueue, const TensorCoreDots& op);

}  // namespace lockstep
