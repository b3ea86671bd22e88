// A kernel that spins, as an adversarial delay.
#pragma once

#include <cstdint>

#include "kernels/core/queue.h"

namespace lockstep {

// Spins for at least `microseconds` of the device's clock.
void spin(CudaQueue queue, std::int64_t microseconds);

}  // namespace lockstep
