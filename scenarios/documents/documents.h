// The documents of a step: what the data source yields, before anybody packs them. Engine and
// oracle read the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// A document, or a piece of one that was split.
struct Document {
  // Index in the order the source yields the pieces of this step; empty ones count.
  std::int32_t number = 0;
  std::vector<std::int32_t> tokens;
  // As many as tokens: the next token, or -1 where there is no loss.
  std::vector<std::int32_t> targets;
};

struct Microbatch {
  // In pack order; slot s of the pack holds document s. Empty ones are slots too.
  std::vector<Document> documents;
};

struct StepData {
  std::vector<Microbatch> microbatches;  // Indexed by global microbatch number.
  std::int64_t targets = 0;  // Unmasked targets of the whole step, all microbatches and ranks.
};

// The layout of a pack's rows. Rows of a slot: length + gaps, rounded up to align; 0 for an empty
// document.
std::int64_t slot_rows(std::int64_t length, std::int64_t gaps, std::int64_t align);
// Slots in use, the dummy slot of `append_dummy_seq` included when rows are left over.
std::int64_t slots_in_use(const Scenario::Data& data, const Microbatch& microbatch);

// Deterministic: equal scenario and step, equal documents; any step in any order.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual StepData training(std::int64_t step) const = 0;
  // The evaluation after optimizer step `step` (0-based). Tokens of its own, the layout of that
  // step (lengths, distribution); the last packs of the data (text, jsonl), which training never
  // sees.
  virtual StepData evaluation(std::int64_t step) const = 0;
  // The entropy of all training targets' tokens, in nats per token; the bar that a trained model
  // must get under.
  virtual double unigram_entropy() const = 0;
};

// Throws ScenarioFailure-like std::runtime_error only for files that changed since the scenario was
// read.
std::unique_ptr<DataSource> open_data(const Scenario& scenario);

}  // namespace lockstep
