// Counts anew which documents a scenario trains and evaluates on, for the judge "documents". Engine
// and oracle read one data source, so no comparison of the two shows an error in it. The recount
// follows docs/scenario-reference.md 7 and shares no code with scenarios/documents but its types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/recount/draws.h"
#include "harness/recount/pieces.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep::recount {

class Recount {
 public:
  // Reads the files that the scenario names.
  explicit Recount(const Scenario& scenario);
  Recount(const Recount&) = delete;
  Recount& operator=(const Recount&) = delete;

  StepData training(std::int64_t step) const;
  StepData evaluation(std::int64_t step) const;  // An evaluation that follows that step.

 private:
  struct Purposes {
    Drawn token, mask;
  };
  std::int64_t microbatches(std::int64_t step) const;  // All ranks together have these.
  // The files' pack of a microbatch; null where training has none.
  const std::vector<Piece>* pack(std::int64_t step, std::int64_t microbatch, Drawn mask) const;
  Microbatch drawn(std::int64_t step, std::int64_t microbatch, const Purposes& purposes) const;
  Microbatch read(std::int64_t step, std::int64_t microbatch, const Purposes& purposes) const;
  // Whether row i of a document predicts the token behind it.
  bool has_target(const Place& place, Drawn mask, std::int64_t row) const;
  StepData step(std::int64_t step, const Purposes& purposes) const;

  const Scenario& scenario_;
  const bool reads_files_;
  const std::vector<Whole> documents_;
  const std::vector<std::vector<Piece>> packs_;
  std::int64_t held_out_ = 0;  // Packs kept for evaluations.
};

// Returns what differs first between the recounted documents of a step and those that engine and
// oracle were given, or the pack that the engine makes of them; "" if nothing does.
std::string difference(const Scenario& scenario, const StepData& want, const StepData& got);

}  // namespace lockstep::recount
