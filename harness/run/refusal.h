// Scenarios that are refused, as the command line says it: all errors of the stage, a line each.
#pragma once

#include <vector>

#include "harness/base/errors.h"
#include "scenarios/io/reader.h"

namespace lockstep {

inline RequestError refusal(const std::vector<ScenarioError>& errors) {
  return RequestError("refused\n" + text_of(errors));
}

}  // namespace lockstep
