#include "kernels/diagnostics/poison.h"

#include "kernels/core/require.h"

namespace lockstep {

void check(const PoisonMemory& op) {
  require(op.memory && op.memory.rows >= 0 && op.memory.cols >= 0, "poison has memory");
}

}  // namespace lockstep
