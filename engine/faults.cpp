#include "engine/faults.h"

namespace lockstep {

std::vector<std::string> engine_faults() {
  return {"allocation-during-capture",
          "compute-ignores-loaded-event",
          "compute-ignores-reload",
          "compute-ignores-step-state-event",
          "compute-overwrites-what-is-leaving",
          "dispatch-reads-rows-before-their-copy",
          "dropout-key-baked",
          "evaluation-counts-pairs",
          "evaluation-with-dropout",
          "expert-bias-never-updated",
          "fallback-truncates-to-capacity",
          "gradients-not-zeroed-at-step-start",
          "loaded-event-awaited-once",
          "loader-ignores-consumed-event",
          "loader-ignores-state-consumed-event",
          "metadata-built-once",
          "metadata-shared-by-slots",
          "microbatch-share-baked",
          "offload-bins-shared-by-neighbours",
          "offload-forgets-a-group",
          "offload-fraction-counts-from-the-front",
          "offload-fraction-rounds-up",
          "offload-ignores-compute",
          "offload-keeps-events-across-captures",
          "offload-shares-pinned-buffers-between-slots",
          "reload-ignores-compute",
          "reload-ignores-the-copy-out",
          "reload-takes-another-slot",
          "replay-runs-twice",
          "replay-skipped-once",
          "router-losses-kept-by-slot",
          "seed-staged-once",
          "staging-rewritten-before-its-copy",
          "state-staging-rewritten-before-its-copy",
          "warm-up-pass-leaves-its-gradients"};
}

}  // namespace lockstep
