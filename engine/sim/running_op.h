// The op that the simulator runs at this moment, for the report of a contract that breaks in it.
#pragma once

#include <cstddef>

#include "engine/device/step_location.h"

namespace lockstep {

struct RunningOp {
  const char* name = "";
  StepLocation place = {};
  bool captured = false;  // In a graph: `place` is that of the capture, but for the step.
};

// Null where no op runs. A process runs one at a time.
inline const RunningOp* running_op = nullptr;

// "(embedding_forward, embedding, rank 0, microbatch 1, step 0)" in `text`, "" where no op runs.
// May be called by a handler of a signal.
void describe_running_op(char* text, std::size_t size);

}  // namespace lockstep
