// The result of one scenario on an engine that lockstep did not write.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/foreign/engine_case.h"
#include "harness/foreign/projection.h"

namespace lockstep::foreign {

struct RelationOutcome {
  std::string id = {}, name = {};    // Both empty for what no relation is about.
  Verdict verdict = Verdict::holds;  // skipped: not applicable.
  JudgeKind judge = JudgeKind::none;
  std::string reason = {};   // Empty for `holds`.
  std::string choices = {};  // "half=odd"
  std::optional<FirstDifference> first_difference = {};
  std::string issue = {};  // An expected failure's; "" for none.
  // A relation with a tolerance has one where it holds.
  std::optional<Margin> margin = {};
};

struct EngineResult {
  CaseResult result;  // With the token of the projected scenario and the line that replays it.
  Scenario scenario;  // As projected; empty where it could not be.
  std::vector<ProjectedKey> projected;
  std::vector<std::string> without_effect;  // Keys that the engine honours by ignoring them.
  std::vector<RelationOutcome> relations;   // As far as the case came.
  std::vector<std::string> left_out;        // Tensors that no relation looks at, since they vary.
  std::vector<std::map<std::string, std::int64_t>> counters;  // The base's, by rank.
  std::int64_t runs = 0;
  std::string relation;  // The verdict's: "R7:half=odd".
};

// Puts the worst outcome that nobody expected into `result`; `command` is that of --engine.
void settle(EngineResult& result, const std::string& command);
// "lockstep replay TOKEN --engine 'CMD' --relation R7:half=odd"
std::string replay_line(const std::string& token, const std::string& command,
                        const std::string& relation);

}  // namespace lockstep::foreign
