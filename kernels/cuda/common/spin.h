// A kernel that does nothing for a while: an adversarial delay.
#pragma once

#include <cstdint>

#include "kernels/core/queue.h"

namespace lockstep {

// At least `microseconds`, by the device's clock.
void spin(CudaQueue queue, std::int64_t microseconds);

}  // namespace lockstep
