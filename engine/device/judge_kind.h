// Which check a verdict comes from. Reports and result files show it as a word.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace lockstep {

enum class JudgeKind : std::uint8_t {
  none,        // No finding.
  activation,  // An activation differs from the reference.
  metadata,    // A boundary of the pack's documents differs from the reference.
  loss,
  gradient,
  norm,
  weights,
  evaluation,
  vacuous,      // The run did not exercise what it claims to.
  counters,     // A rule of the scenario's expect.counters.
  costs,        // The run asks more or less of the device than costs.txt says, or ever more memory.
  documents,    // Tokens, targets or places of rows other than those that the scenario means.
  hazard,       // The race detector.
  checker,      // A program with a known verdict, on which the race detector fails.
  schedule,     // Simulated schedules that give different results.
  capture,      // A graph capture failed.
  address,      // A buffer moved since its graph was captured.
  ledger,       // A replay would submit other work than was captured.
  collective,   // Ranks disagree on a collective.
  contract,     // A broken require().
  effect,       // A planted fault whose effect on the device's state was measured.
  oracle,       // The oracle gave several results for one case.
  refusal,      // The reader refused a scenario, or failed to.
  expectation,  // The scenario's `expect` section was not met.
  remote_failure,  // Another rank has found what is wrong.
  watchdog,        // A deadline passed.
  crash,           // The process died.
  device,          // The device failed, or is not there.
  memory,          // Out of memory.
  exception,
  state,  // A campaign's folder does not fit the campaign.
  disk,
  // These judge another engine by comparing it with itself (docs/engine-protocol.md).
  relation,  // Two of its runs differ that must be equal.
  rows,      // The rows that it says are not its documents'.
  ranks,     // Its ranks tell one tensor with different bits.
  nan,       // A run that nothing is done to holds a NaN.
  failed,    // It gave up a run that it had agreed to.
  protocol,  // It does not keep to the protocol.
  unstable,  // Runs differed once and then no more.
  // The command ended with this exit status before it could judge.
  status_1,
  status_2,
  status_3,
  status_4,
  status_5,
};

std::string to_text(JudgeKind judge);
// Throws std::invalid_argument if no judge has this word.
JudgeKind judge_from_text(std::string_view text);
std::ostream& operator<<(std::ostream& out, JudgeKind judge);

}  // namespace lockstep
