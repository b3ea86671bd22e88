#include "harness/foreign/engine_result.h"

namespace lockstep::foreign {
namespace {

// violated, broken, gave_up, skipped, holds: the worst of a case's relations is its verdict.
int badness(Verdict verdict) {
  switch (verdict) {
    case Verdict::violated:
      return 4;
    case Verdict::broken:
      return 3;
    case Verdict::gave_up:
      return 2;
    case Verdict::skipped:
      return 1;
    case Verdict::holds:
      return 0;
  }
  return 3;
}

std::string quoted_for_shell(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string replay_line(const std::string& token, const std::string& command,
                        const std::string& relation) {
  return "lockstep replay " + token + " --engine " + quoted_for_shell(command) +
         (relation.empty() ? "" : " --relation " + relation);
}

void settle(EngineResult& result, const std::string& command) {
  CaseResult& whole = result.result;
  if (whole.verdict == Verdict::skipped && result.relations.empty()) return;
  const RelationOutcome* worst = nullptr;
  std::string expected;
  for (const RelationOutcome& one : result.relations) {
    if (!one.issue.empty())
      expected +=
          (expected.empty() ? "" : "; ") + one.id + " fails as expected (" + one.issue + ")";
    if (!one.issue.empty() || badness(one.verdict) <= badness(Verdict::skipped)) continue;
    if (worst == nullptr || badness(one.verdict) > badness(worst->verdict)) worst = &one;
  }
  whole.verdict = Verdict::holds;
  whole.judge = JudgeKind::none;
  whole.reason = expected;
  whole.first_difference.reset();
  result.relation.clear();
  if (worst != nullptr) {
    whole.verdict = worst->verdict;
    whole.judge = worst->judge;
    whole.first_difference = worst->first_difference;
    whole.reason =
        worst->id.empty() ? worst->reason : worst->id + " " + worst->name + ": " + worst->reason;
    if (!worst->id.empty())
      result.relation = worst->id + (worst->choices.empty() ? "" : ":" + worst->choices);
  }
  whole.replay = replay_line(whole.token, command, result.relation);
}

}  // namespace lockstep::foreign
