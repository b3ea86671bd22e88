// Legality as a table: one row for each request that a rule refuses (docs/scenario-reference.md,
// section 4).
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/documented.h"

namespace lockstep {

// A request that a rule refuses: where it stands, the nearest legal value, and the numbers at hand.
struct Finding {
  std::string key, nearest, detail;
};
using Findings = std::vector<Finding>;

struct Rule {
  Documented id;
  Documented text;  // As printed, with its reason.
  Documented why;
  Findings (*check)(const Scenario&);
  Documented keys;     // Keys and sections that the rule looks at, separated by blanks.
  Documented illegal;  // A file that this row refuses, without its first two keys unless the rule
                       // is one of reading.
};

// The rules of one subject each, lowest first.
std::span<const Rule> model_rules();
std::span<const Rule> data_rules();
std::span<const Rule> training_rules();
std::span<const Rule> graph_rules();
std::span<const Rule> added_rules();
std::span<const Rule> pipeline_rules();
std::span<const Rule> offload_rules();
std::span<const Rule> sharding_rules();
std::span<const Rule> checker_rules();
// The rules of reading, Y01..Y08, and L00: for the reference alone, since other code checks them.
std::span<const Rule> reading_rules();
std::span<const Rule> built_rules();
// All rows: reading, legality, not built.
std::vector<Rule> all_rules();

inline bool has_layer(const Scenario& scenario, char symbol) {
  return scenario.model.pattern.find(symbol) != std::string::npos;
}

template <class Value>
bool holds(const std::vector<Value>& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The first precision that is listed decides what a run stores and multiplies: activations in bf16,
// which fp8 has too, and codes of fp8.
inline bool stores_bf16(const Scenario& scenario) {
  return scenario.numerics.front() != Numerics::fp32;
}
inline bool multiplies_fp8(const Scenario& scenario) {
  return scenario.numerics.front() == Numerics::fp8;
}

// Widths fill rows of 16 bytes if any listed precision needs it (L03).
inline bool lists_bf16_or_fp8(const Scenario& scenario) {
  return holds(scenario.numerics, Numerics::bf16) || holds(scenario.numerics, Numerics::fp8);
}

inline bool with_graphs(const Scenario& scenario) {
  return scenario.cuda_graph.impl != GraphImpl::none;
}
inline bool with_partial_graphs(const Scenario& scenario) {
  return scenario.cuda_graph.impl == GraphImpl::partial;
}
inline bool with_whole_layers(const Scenario& scenario) {
  return with_partial_graphs(scenario) && scenario.cuda_graph.modules.empty();
}
inline bool with_offload(const Scenario& scenario) { return !scenario.offload.modules.empty(); }
inline bool with_sharding(const Scenario& scenario) {
  return scenario.fsdp.strategy != Sharding::no_shard;
}
// Gradients are reduced even where nothing is sharded.
inline bool with_reduction(const Scenario& scenario) {
  return with_sharding(scenario) || scenario.parallel.data > 1;
}

// The product of all kinds of parallelism; experts lie over ranks of `data`.
inline std::int64_t all_ranks(const Scenario& scenario) {
  const Scenario::Parallel& p = scenario.parallel;
  return p.data * p.context * p.tensor * p.pipeline;
}
// The symbol that has the module; `E` for every part of a layer of experts.
char layer_of(GraphModule module);
// The symbol whose layers have the module; '\0' for every layer.
char layer_of(Recompute module);
// Whether expect.counters lets a run do without a replay.
bool allows_no_replay(const Scenario& scenario);

// The larger one of two that are equally near; at least one step.
inline std::int64_t nearest_multiple(std::int64_t value, std::int64_t step) {
  return std::max(step, (2 * value + step) / (2 * step) * step);
}
// The smaller one of two that are equally near.
std::int64_t nearest_divisor(std::int64_t value, std::int64_t of);

inline std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return "[" + text + "]";
}
inline std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> items;
  for (const std::int64_t number : numbers) items.push_back(std::to_string(number));
  return list_text(items);
}
template <class Enum>
std::string set_text(const std::vector<Enum>& set) {
  std::vector<std::string> items;
  for (const Enum value : set) items.push_back(word(value));
  return list_text(items);
}

}  // namespace lockstep
