// A fault to plant, and the reports that it may lead to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/judge/runner.h"

namespace lockstep {

// A judge that may name the fault, and words of which its report must hold one.
// No words: any report of that judge.
struct Reason {
  std::optional<JudgeKind> judge;  // Absent: any comparison of values.
  std::vector<std::string> words;
};

struct Fault {
  enum class Kind : std::uint8_t { named, systematic };
  std::string name;
  Kind kind = Kind::named;
  std::string bug_class;  // "attention", "stream race", ...; of a systematic one its operator.
  std::string site;       // File, or place in the step.
  std::vector<Reason> reasons;
  RunOptions plant;  // Says where it is planted: fault, mutation or blindness.
  // It only takes edges away: where the checker finds everything in order without them, it changes
  // nothing.
  bool removes_order = false;
  bool can_be_equivalent = false;  // Its call may have no effect (equivalent_mutant.h).
  std::vector<int> cases = {};  // The ones that it can strike, smallest first; of `MutationCases`.
};

bool is_bit_judge(JudgeKind judge);
// Whether the report is one of those that the fault should lead to.
bool is_right_reason(const Fault& fault, const CaseResult& result);

}  // namespace lockstep
