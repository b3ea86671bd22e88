#include "harness/report/shared_memory_table.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/memory/memory_plan.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// The plans of all stages.
std::vector<MemoryPlan> plans_for(const Scenario& scenario, Numerics numerics) {
  Scenario narrowed = scenario;
  narrowed.numerics = {numerics};
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage < scenario.parallel.pipeline; ++stage)
    plans.push_back(plan_memory(narrowed, stage));
  return plans;
}

// The name without numbers: "layers.*.qkv".
std::string kind_of(const std::string& name) {
  std::string kind;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) kind += c;
    if (digit && !kind.empty() && kind.back() == '.') kind += '*';
  }
  return kind;
}

struct Kind {
  std::string name;
  std::int64_t tensors = 0, bytes = 0;
};

// What is alive at the peak, in falling bytes.
std::vector<Kind> kinds_at_peak(const MemoryPlan& plan) {
  std::map<std::string, Kind> by_name;
  for (const std::size_t i : plan.at_peak) {
    const std::string name = kind_of(plan.tensors[i].tensor.name);
    Kind& kind = by_name[name];
    kind.name = name;
    ++kind.tensors;
    kind.bytes += plan.tensors[i].bytes;
  }
  std::vector<Kind> kinds;
  for (auto& [name, kind] : by_name) kinds.push_back(std::move(kind));
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.bytes > b.bytes; });
  return kinds;
}

std::string line(const char* what, std::int64_t bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "  %-28s %.3f MB", what, static_cast<double>(bytes) / 1e6);
  return text;
}

double ratio(std::int64_t bytes, std::int64_t of) {
  return of == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(of);
}

void write_plan(std::ostringstream& out, const std::string& whose, const MemoryPlan& plan) {
  char text[96];
  out << "\nshared memory " << whose << ", " << plan.tensors.size() << " tensors\n"
      << line("without sharing", plan.unshared) << "\n"
      << line("shared", plan.bytes);
  std::snprintf(text, sizeof text, ", %.1f %% less\n", 100 * ratio(plan.saved(), plan.unshared));
  out << text << line("largest sum of live bytes", plan.peak_bytes);
  std::snprintf(text, sizeof text, ", shared are %.3f times as many\n",
                ratio(plan.bytes, plan.peak_bytes));
  out << text;
  if (plan.least_bytes > plan.peak_bytes)
    out << line("largest of tensors in pairs", plan.least_bytes) << "\n";
  if (plan.apart_bytes > plan.peak_bytes)
    out << line("live bytes of chunks apart", plan.apart_bytes) << "\n";
  out << line("first fit by size alone", plan.first_fit_bytes) << "\n"
      << "  alive at " << plan.peak_place << "\n";
  for (const Kind& kind : kinds_at_peak(plan)) {
    std::snprintf(text, sizeof text, "%12.3f MB", static_cast<double>(kind.bytes) / 1e6);
    out << "  " << text << "  " << kind.name;
    if (kind.tensors > 1) out << " (" << kind.tensors << ")";
    out << "\n";
  }
}

json::object json_of(const MemoryPlan& plan) {
  json::array alive;
  for (const Kind& kind : kinds_at_peak(plan))
    alive.push_back(
        json::object{{"name", kind.name}, {"tensors", kind.tensors}, {"bytes", kind.bytes}});
  return {{"tensors", plan.tensors.size()},
          {"unshared_bytes", plan.unshared},
          {"bytes", plan.bytes},
          {"saved_bytes", plan.saved()},
          {"first_fit_bytes", plan.first_fit_bytes},
          {"largest_live_bytes", plan.peak_bytes},
          {"least_bytes", plan.least_bytes},
          {"chunks_apart_bytes", plan.apart_bytes},
          {"largest_at", plan.peak_place},
          {"alive", std::move(alive)}};
}

}  // namespace

std::string shared_memory_table(const Scenario& scenario) {
  if (!scenario.cuda_graph.shared_memory) return "";
  std::ostringstream out;
  for (const Numerics numerics : scenario.numerics) {
    const std::vector<MemoryPlan> plans = plans_for(scenario, numerics);
    for (std::size_t stage = 0; stage < plans.size(); ++stage) {
      const std::string of = plans.size() > 1 ? "of stage " + std::to_string(stage) + " " : "";
      write_plan(out, of + "in " + word(numerics), plans[stage]);
    }
  }
  return out.str();
}

json::object shared_memory_json(const Scenario& scenario) {
  json::object all;
  for (const Numerics numerics : scenario.numerics) {
    json::array stages;
    for (const MemoryPlan& plan : plans_for(scenario, numerics)) stages.push_back(json_of(plan));
    json::value& own = all[word(numerics)];
    if (stages.size() == 1) own = stages.front();
    if (stages.size() > 1) own = std::move(stages);
  }
  return all;
}

}  // namespace lockstep
