// The time of every op of a training step: one eager step is recorded, then each of its ops runs
// again by itself, on the operands that it had.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "harness/bench/work.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct KernelTime {
  std::string op;
  int times = 0;  // Calls of this op with these shapes in a step.
  OpWork work;    // For one call.
  double seconds = 0;
  double ceiling = 0;  // Seconds in which this machine could: of the fastest library, or of a copy;
                       // 0 is not known.
  double copy = 0;  // Seconds of a copy of as many bytes, timed as the op was: it starts and ends
                    // too. 0: not asked.
  double own = 0;   // Seconds of lockstep's own kernel for a product that a library has too, which
                    // it runs where none of the library's algorithms is admitted. 0: there is none.
};
struct KernelTimes {
  std::string no_cudnn;  // Why attention has no ceiling; "" where it has one, or needs none.
  // A copy on the device, bytes read and written: what bandwidth can be.
  double copy_bytes_per_second = 0;
  std::vector<KernelTime> cudnn;  // Attention by it, where that is a ceiling.
  std::vector<KernelTime> list;   // The largest share of a step first.
};

// Attention of native scenarios in bf16 is timed on a GPU by cuDNN too, over the same packs:
// forward, backward with deterministic gradients, and backward without, which is the ceiling of
// ours. Ops whose signature holds `only`; all if it is empty. `done` is told each time when it is
// known.
KernelTimes time_kernels(const Scenario& scenario, const std::string& device_kind,
                         const std::string& only,
                         const std::function<void(const KernelTime&)>& done);

}  // namespace lockstep
