// The result of a scenario as a value: it is compared, stored, shrunk and replayed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/judge_kind.h"
#include "harness/checker/hazard_record.h"
#include "harness/costs/costs.h"
#include "scenarios/counter.h"

namespace lockstep {

enum class Verdict : std::uint8_t {
  holds,
  violated,  // A promise was broken: judge and reason say which.
  broken,    // The environment failed, or the process died, before a judgement.
  gave_up,   // A budget ended first.
  skipped,   // Not run: this machine or this build cannot. Never a pass.
};
const char* to_text(Verdict verdict);
inline std::ostream& operator<<(std::ostream& out, Verdict verdict) {
  return out << to_text(verdict);
}

// The first tensor in program order whose bits differ, down to the element. -1 where a field has no
// meaning.
struct FirstDifference {
  std::int64_t step = -1;
  std::int64_t rank = 0;
  std::int64_t microbatch = -1;
  std::int64_t layer = -1;
  std::string op;
  std::string tensor;
  std::int64_t index = -1, row = -1, column = -1;
  std::int64_t document = -1;  // Document::number; -1 outside documents.
  std::int64_t position = -1;  // The number of the row in its document.
  std::string got, want;  // Decimal and bits: "0.5 0x3f000000". "missing" where there is no tensor.
  bool bf16 = false;      // Both are stored as bf16, and `got` and `want` are widened.
  std::optional<std::int64_t> ulp;              // In fp32. Absent where one side is no number.
  std::optional<std::int64_t> stored_ulp = {};  // In the stored type.
  // Which runs `got` and `want` are of, where they are not the engine's and the oracle's.
  std::string got_from = {}, want_from = {};
  std::string writers = {};  // Only in a run that is watched: the ops that wrote what is there.
  friend bool operator==(const FirstDifference&, const FirstDifference&) = default;
};

// The first op, in the order in which the ops ran, that wrote something else than the oracle's. All
// that ran before it and can be compared wrote the oracle's values.
struct WrongOp {
  std::int64_t step = -1, rank = 0, microbatch = -1, layer = -1;
  bool backward = false;
  std::string op;  // "": there is none, so the difference comes from behind the ops of the passes.
  std::string operand;  // The first of those it wrote that differs.
  struct Input {
    std::string operand, writers;  // The ops that wrote it last; "" where none did.
    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs = {};
  friend bool operator==(const WrongOp&, const WrongOp&) = default;
};

// One scenario in one precision.
struct CaseResult {
  std::string name;
  std::string file;  // The file of the scenario; "" where it came from elsewhere.
  std::string numerics;
  std::string token;
  // The folder that the token's data.path is relative to, "" where it reads none.
  std::string data_from;
  Verdict verdict = Verdict::holds;
  JudgeKind judge = JudgeKind::none;
  std::string reason;
  std::optional<FirstDifference> first_difference;
  std::optional<WrongOp> wrong_op = {};    // Only where a run looked for it.
  std::vector<HazardRecord> hazards = {};  // The hazard that is told, where that is the judge.
  Counters counters;
  Costs costs = {};  // The costs of the first run without readbacks on the simulated device.
  // On the simulated device: how many schedules ran, and what they were bound to find.
  std::string schedules;
  std::vector<std::string> blind;  // Errors that the scenario cannot show (blind_spots.h).
  std::vector<std::string> redundant_edges;  // One line each, if requested.
  double seconds = 0;
  std::string replay;  // The command line that runs it again.
  DeviceInfo device;
};

}  // namespace lockstep
