#include "engine/faults.h"

namespace lockstep {

std::vector<std::string> engine_faults() {
  return {"allocation-during-capture",
          "compute-ignores-loaded-event",
          "compute-ignores-step-state-event",
          "dropout-key-baked",
          "evaluation-with-dropout",
          "fallback-truncates-to-capacity",
          "gradients-not-zeroed-at-step-start",
          "metadata-shared-by-slots",
          "replay-runs-twice",
          "replay-skipped-once",
          "warm-up-pass-leaves-its-gradients"};
}

}  // namespace lockstep
