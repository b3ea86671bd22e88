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

MemoryPlan plan_for(const Scenario& scenario, Numerics numerics) {
  Scenario narrowed = scenario;
  narrowed.numerics = {numerics};
  return plan_memory(narrowed);
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

void write_plan(std::ostringstream& out, Numerics numerics, const MemoryPlan& plan) {
  char text[96];
  out << "\nshared memory in " << word(numerics) << ", " << plan.tensors.size() << " tensors\n"
      << line("without sharing", plan.unshared) << "\n"
      << line("shared", plan.bytes);
  std::snprintf(text, sizeof text, ", %.1f %% less\n", 100 * ratio(plan.saved(), plan.unshared));
  out << text << line("largest sum of live bytes", plan.peak_bytes);
  std::snprintf(text, sizeof text, ", shared are %.3f times as many\n",
                ratio(plan.bytes, plan.peak_bytes));
  out << text << line("first fit by size alone", plan.first_fit_bytes) << "\n"
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
          {"largest_at", plan.peak_place},
          {"alive", std::move(alive)}};
}

}  // namespace

std::string shared_memory_table(const Scenario& scenario) {
  if (!scenario.cuda_graph.shared_memory) return "";
  std::ostringstream out;
  for (const Numerics numerics : scenario.numerics)
    write_plan(out, numerics, plan_for(scenario, numerics));
  return out.str();
}

json::object shared_memory_json(const Scenario& scenario) {
  json::object all;
  for (const Numerics numerics : scenario.numerics)
    all[word(numerics)] = json_of(plan_for(scenario, numerics));
  return all;
}

}  // namespace lockstep
