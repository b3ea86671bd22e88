// The text for refused scenarios: all errors of the stage, one per line.
#pragma once

#include <vector>

#include "harness/base/errors.h"
#include "scenarios/io/reader.h"

namespace lockstep {

inline RequestError refusal(const std::vector<ScenarioError>& errors) {
  return RequestError("refused\n" + text_of(errors));
}

}  // namespace lockstep
