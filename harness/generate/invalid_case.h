// Invalid cases (profile `near-legal`): a legal scenario in which exactly one rule of
// docs/scenario-reference.md is broken. The reader must refuse its text, and by that rule alone.
#pragma once

#include <string>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/generate/choices.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct InvalidCase {
  std::string rule;   // The one that is broken.
  std::string text;   // The text for the reader: YAML, or the canonical form.
  Scenario scenario;  // Legal where only the text is broken.
};

// Breaks the next rule that `legal` can break, counted from one that is drawn.
InvalidCase make_invalid_case(const Scenario& legal, Choices& choices);
// Holds if exactly that rule refuses it.
CaseResult judge_invalid_case(const InvalidCase& near);
// Rules that can be broken, for tests.
std::vector<std::string> rules_with_invalid_cases();

}  // namespace lockstep
