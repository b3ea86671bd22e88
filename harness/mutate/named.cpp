#include "harness/mutate/named.h"

#include <algorithm>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string_view>

#include "engine/device/faults.h"
#include "harness/checker/checker.h"
#include "harness/mutate/named_table.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "oracle/oracle.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// "gradient: qkv.weight proj.weight; hazard: loader" as judges and words.
std::vector<Reason> reasons_in(const std::string& text) {
  std::vector<Reason> reasons;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    Reason reason;
    words >> reason.judge;
    if (reason.judge.ends_with(':')) reason.judge.pop_back();
    for (std::string word; words >> word;) reason.words.push_back(word);
    reasons.push_back(std::move(reason));
  }
  return reasons;
}

// The row with the longest beginning of the name.
template <std::size_t N>
const NamedRow& row_of(const std::array<NamedRow, N>& table, std::string_view name) {
  const NamedRow* best = nullptr;
  for (const NamedRow& row : table) {
    if (name.starts_with(row.begins) && (!best || row.begins.size() > best->begins.size())) best = &row;
  }
  if (!best) std::cerr << "lockstep: no row for " << name << "\n";
  require(best, "every named fault has a row in harness/mutate/named_table.h");
  return *best;
}

class Catalogue {
 public:
  explicit Catalogue(const std::vector<MutationCase>& cases) : cases_(cases) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      experts_ = experts_ || has_layer(cases[i].scenario, 'E');
      sharded_ = sharded_ || with_reduction(cases[i].scenario);
      (cases[i].probe ? probes_ : scenarios_).push_back(static_cast<int>(i));
    }
  }

  // Of experts or of sharding: it shows in no scenario without.
  void add(const std::string& name, const NamedRow& row, RunOptions plant) {
    if (row.elsewhere || (row.experts && !experts_) || (row.sharded && !sharded_)) return;  // Shows in nothing.
    std::vector<int> scenarios = scenarios_;
    std::erase_if(scenarios, [&](int i) {
      const Scenario& scenario = cases_[static_cast<std::size_t>(i)].scenario;
      return (row.experts && !has_layer(scenario, 'E')) || (row.sharded && !with_reduction(scenario));
    });
    std::vector<int> cases = row.probes_first ? probes_ : scenarios;
    const std::vector<int>& later = row.probes_first ? scenarios : probes_;
    cases.insert(cases.end(), later.begin(), later.end());
    faults_.push_back({.name = name,
                       .bug_class = std::string(row.bug_class),
                       .site = std::string(row.site),
                       .reasons = reasons_in(std::string(row.reasons)),
                       .plant = std::move(plant),
                       .removes_order = row.removes_order,
                       .cases = std::move(cases)});
  }
  std::vector<Fault> take() { return std::move(faults_); }

 private:
  const std::vector<MutationCase>& cases_;
  bool experts_ = false, sharded_ = false;
  std::vector<int> scenarios_, probes_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> named_faults(const std::vector<MutationCase>& cases) {
  Catalogue catalogue(cases);
  for (const auto& name : kernel_faults()) {
    catalogue.add(name, row_of(kKernelRows, name), {.fault = name, .mutation = ""});
  }
  const std::vector<std::string> sharding = sharding_faults();
  for (const auto& name : engine_faults()) {
    const bool shards = std::find(sharding.begin(), sharding.end(), name) != sharding.end();
    catalogue.add(name, shards ? row_of(kShardingRows, name) : row_of(kEngineRows, name),
                  {.fault = name, .mutation = ""});
  }
  for (const auto& name : oracle::Oracle::mutations()) {
    catalogue.add("oracle:" + name, row_of(kOracleRows, name), {.fault = "", .mutation = name});
  }
  for (const auto& name : Checker::mutations()) {
    catalogue.add("checker:" + name, row_of(kCheckerRows, name), {.fault = "", .mutation = "", .blindness = name});
  }
  return catalogue.take();
}

}  // namespace lockstep
