// What ends a case or a command because of the engine's process, not of what it computed
// (docs/engine-protocol.md, section 11).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "engine/device/judge_kind.h"

namespace lockstep::foreign {

// The process died (crash), gave no answer in time (watchdog), or did not keep to the protocol.
struct EngineFailure : std::runtime_error {
  // Between: it happened when nothing was asked, so no run of this case is to blame.
  enum class When : bool { during_a_request, between };
  EngineFailure(JudgeKind by, const std::string& reason, When happened = When::during_a_request)
      : runtime_error(reason), judge(by), when(happened) {}
  JudgeKind judge;
  When when;
};

// A run that the engine gave up while its process lives: `word` as section 8 has it.
struct RunFailed : std::runtime_error {
  RunFailed(std::string said, const std::string& reason)
      : runtime_error(reason), word(std::move(said)) {}
  std::string word;
};

// The engine says that it cannot run this.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The relation says nothing about this case.
struct NotApplicable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::foreign
