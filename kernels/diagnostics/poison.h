// Makes memory undefined, so that a read before the next write is found.
#pragma once

#include <cstdint>

#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Every float, and every bf16, is then a signalling NaN.
struct PoisonMemory {
  static constexpr const char* kName = "poison";
  static constexpr std::uint16_t kFresh = 0x7fba;
  static constexpr std::uint16_t kFreed = 0x7fbe;
  Out<std::uint16_t> memory;
  std::uint16_t half = kFresh;
};
void check(const PoisonMemory& op);
void run(HostQueue, const PoisonMemory& op);
void run(CudaQueue, const PoisonMemory& op);

// `bytes` bytes; an odd last one is left as it is.
inline PoisonMemory poison(void* memory, std::int64_t bytes,
                           std::uint16_t half = PoisonMemory::kFresh) {
  return {.memory = tensor(static_cast<std::uint16_t*>(memory), 1, bytes / 2), .half = half};
}

}  // namespace lockstep
