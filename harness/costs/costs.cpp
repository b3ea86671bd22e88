#include "harness/costs/costs.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/md5.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr const char* kHead =
    "# What each scenario of this folder asks of the simulated device (docs/costs.md).\n"
    "# `lockstep verify --update-costs` writes this file.\n";

std::string text_of(const Costs& costs) {
  std::string text;
  for (const auto& [group, numbers] : costs) {
    text += "  " + group + ":";
    for (const auto& [name, number] : numbers) text += " " + name + " " + std::to_string(number);
    text += "\n";
  }
  return text;
}

// Reads "  group: name number name number".
void read_group(const std::string& line, Costs& costs) {
  std::istringstream words(line);
  std::string group, name;
  std::int64_t number = 0;
  words >> group;
  if (group.empty() || group.back() != ':') throw std::invalid_argument("no group");
  group.pop_back();
  while (words >> name) {
    if (!(words >> number)) throw std::invalid_argument("no number of " + name);
    costs[group][name] = number;
  }
}

// After how many steps a scenario does the same again; 0 if that is not known.
std::int64_t period_of(const Scenario& scenario) {
  if (scenario.data.kind != DataKind::lengths) return 0;
  const std::int64_t documents = std::ssize(scenario.data.documents);
  const std::int64_t evaluations = std::max<std::int64_t>(scenario.training.eval_every, 1);
  return std::lcm(documents, evaluations);
}

// Whether a microbatch may have more documents than the largest bucket, with one for the tail, or a
// document that is longer than captured launches take.
bool may_overflow(const Scenario& scenario) {
  const auto& buckets = scenario.cuda_graph.max_packed_seqs;
  const std::int64_t largest = *std::max_element(buckets.begin(), buckets.end());
  for (const auto& step : scenario.data.documents) {
    for (const auto& lengths : step) {
      if (std::ssize(lengths) + 1 > largest) return true;
      if (need_of(scenario.data, lengths).longest > longest_captured(scenario)) return true;
    }
  }
  return false;
}

// "; grown by 256 bytes from an evaluation": what grew most from one step to another; "" where
// nothing did.
std::string growth_from(const StepMemory::Origins& origins, std::int64_t before, std::int64_t after,
                        const std::string& unit) {
  if (std::ssize(origins) <= after) return "";
  std::int64_t most = 0;
  std::string where;
  for (const auto& [origin, count] : at(origins, after)) {
    const auto& earlier = at(origins, before);
    const auto found = earlier.find(origin);
    const std::int64_t more = count - (found == earlier.end() ? 0 : found->second);
    if (more <= most) continue;
    most = more;
    where = origin;
  }
  return most == 0 ? "" : "; grown by " + std::to_string(most) + unit + " from " + where;
}

// The first step from which on nothing new is captured, allocated or counted.
std::int64_t steady_from(const Scenario& scenario, std::int64_t period) {
  const bool graphs = scenario.cuda_graph.impl != GraphImpl::none;
  std::int64_t first = graphs ? scenario.cuda_graph.warmup_steps : 0;
  for (const std::int64_t step : scenario.training.recapture_at) first = std::max(first, step);
  for (const auto& change : scenario.training.change_microbatches_at)
    first = std::max(first, change.step);
  // A table of overflowing documents is as large as any table before it: one that is loaded before
  // the largest grows a period later.
  return first + (may_overflow(scenario) ? 2 : 1) * period - 1;
}

}  // namespace

std::string cost_digest(const Scenario& scenario) {
  Scenario bare = scenario;
  bare.name = Scenario().name;
  bare.description = Scenario().description;
  bare.data.digest.clear();  // A file may leave it out; a run knows it.
  bare.checker.schedule = {};
  bare.expect = {};
  Md5 sum;
  sum.add(to_yaml(bare));  // Keys at their defaults are left out, so a new key changes no row.
  return sum.hex();
}

std::string difference(const Costs& got, const Costs& want) {
  Costs all = got;  // Every name of both, for their order.
  for (const auto& [group, numbers] : want) all[group].insert(numbers.begin(), numbers.end());
  const auto number = [](const Costs& costs, const std::string& group, const std::string& name) {
    const auto found = costs.find(group);
    if (found == costs.end()) return std::int64_t{0};
    const auto one = found->second.find(name);
    return one == found->second.end() ? std::int64_t{0} : one->second;
  };
  for (const auto& [group, numbers] : all) {
    for (const auto& [name, unused] : numbers) {
      const std::int64_t here = number(got, group, name), there = number(want, group, name);
      if (here == there) continue;
      return group + " " + name + " is " + std::to_string(here) + ", " + std::to_string(there) +
             " in costs.txt";
    }
  }
  return "";
}

std::string memory_growth(const Scenario& scenario, const StepMemory& memory) {
  const std::int64_t period = period_of(scenario);
  if (period == 0 || scenario.cuda_graph.graph_memory_limit > 0) return "";
  const std::int64_t first = steady_from(scenario, period);
  const auto grown = [&](const std::vector<std::int64_t>& numbers,
                         const StepMemory::Origins& origins, const std::string& what,
                         const std::string& unit) {
    for (std::int64_t step = first + period; step < std::ssize(numbers); ++step) {
      const std::int64_t before = at(numbers, step - period), after = at(numbers, step);
      if (after == before) continue;
      return what + " is " + std::to_string(after) + unit + " after step " + std::to_string(step) +
             " and was " + std::to_string(before) + " after step " + std::to_string(step - period) +
             ", which did the same" + growth_from(origins, step - period, step, unit);
    }
    return std::string();
  };
  std::string found = grown(memory.device, memory.device_from, "device memory", " bytes");
  if (found.empty()) found = grown(memory.pinned, memory.pinned_from, "pinned memory", " bytes");
  if (found.empty())
    found =
        grown(memory.objects, memory.objects_from, "the number of streams, events and graphs", "");
  return found;
}

std::string to_text(std::vector<CostRow> rows) {
  std::sort(rows.begin(), rows.end(), [](const CostRow& a, const CostRow& b) {
    return std::tie(a.name, a.numerics) < std::tie(b.name, b.numerics);
  });
  std::string text = kHead;
  for (const CostRow& row : rows)
    text += "\n" + row.name + " " + row.numerics + " " + row.digest + "\n" + text_of(row.costs);
  return text;
}

std::vector<CostRow> cost_rows(const std::string& text) {
  std::vector<CostRow> rows;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    try {
      if (line.empty() || line.front() == '#') continue;
      if (line.front() == ' ') {
        if (rows.empty()) throw std::invalid_argument("no scenario");
        read_group(line, rows.back().costs);
        continue;
      }
      CostRow row;
      std::istringstream words(line);
      if (!(words >> row.name >> row.numerics >> row.digest))
        throw std::invalid_argument("a name, a precision and a digest are wanted");
      rows.push_back(std::move(row));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("line " + std::to_string(number) + ": " + error.what());
    }
  }
  return rows;
}

std::string cost_file(const std::string& folder) {
  return (folder.empty() ? "." : folder) + "/costs.txt";
}

std::vector<CostRow> cost_rows_in(const std::string& folder) {
  std::ifstream file(cost_file(folder));
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return cost_rows(text.str());
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(cost_file(folder) + ": " + error.what());
  }
}

}  // namespace lockstep
