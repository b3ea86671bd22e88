// Near-legal scenarios: a legal one with exactly one rule of scenario.md broken. The reader must refuse its text, and
// by that rule alone.
#pragma once

#include <string>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/generate/choices.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct NearLegal {
  std::string rule;   // The one that is broken.
  std::string text;   // What the reader gets: YAML, or the canonical form.
  Scenario scenario;  // Legal where only the text is broken.
};

// Breaks the next rule that `legal` can break, counted from one that is drawn.
NearLegal break_one_rule(Scenario legal, Choices& choices);
// Holds if exactly that rule refuses it.
CaseResult judge_near_legal(const NearLegal& near);
// Rules that can be broken, for tests.
std::vector<std::string> breakable_rules();

}  // namespace lockstep
