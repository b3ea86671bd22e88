// What a run asks of the device, as numbers that neither the schedule nor the speed of the device
// changes. docs/costs.md says what each name means.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// "launches", "ops", "copies", "memory": the groups, each with its numbers by name.
using Costs = std::map<std::string, std::map<std::string, std::int64_t>>;

// Bytes that are allocated when a step has ended, and how many streams, events and graphs exist
// (`objects`), and graphs alone, over all ranks of the process, by step.
struct StepMemory {
  std::vector<std::int64_t> device = {}, pinned = {}, objects = {}, graphs = {};
  // The same by where they were made: "an evaluation", "a backward pass, layer 2, qkv".
  using Origins = std::vector<std::map<std::string, std::int64_t>>;
  Origins device_from = {}, pinned_from = {}, objects_from = {};
};

// How often backward passes ran an op of a layer again, in graphs too.
using RecomputedOps = std::map<std::pair<int, std::string>, std::int64_t>;

// One scenario in one precision, in the file `costs.txt` beside the scenario's file.
struct CostRow {
  std::string name;      // The scenario's.
  std::string numerics;  // "fp32" or "bf16".
  std::string digest;    // MD5 of the keys that costs may depend on (cost_digest).
  Costs costs;
};

// The scenario has one precision. Its name, description, schedules and expectations do not count.
std::string cost_digest(const Scenario& scenario);

// "" or the first number that differs, as a sentence: "ops rms_norm_forward is 13, 12 in
// costs.txt".
std::string difference(const Costs& got, const Costs& want);

// "" or a sentence: memory or the number of objects differs after a step and a later one that does
// the same, and where most of what came in between was made.
std::string memory_growth(const Scenario& scenario, const StepMemory& memory);

// Rows as the text of `costs.txt`, sorted by name and precision, a line for each group.
std::string to_text(std::vector<CostRow> rows);
// Throws std::invalid_argument with the number of a line that to_text does not write.
std::vector<CostRow> cost_rows(const std::string& text);
// The rows of `costs.txt` in a scenario's folder; none if there is no such file.
std::vector<CostRow> cost_rows_in(const std::string& folder);
std::string cost_file(const std::string& folder);

}  // namespace lockstep
