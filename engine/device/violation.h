// An error that the engine found in its own run.
#pragma once

#include <stdexcept>
#include <string>

#include "engine/device/judge_kind.h"

namespace lockstep {

// A buffer moved since a capture, a replay would submit other work than was captured, or a capture
// failed.
class EngineViolation : public std::runtime_error {
 public:
  EngineViolation(JudgeKind judge, const std::string& what)
      : std::runtime_error(what), judge_(judge) {}
  JudgeKind judge() const { return judge_; }

 private:
  JudgeKind judge_;
};

}  // namespace lockstep
