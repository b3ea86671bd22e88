#include "harness/mutate/named.h"

#include <algorithm>
#include <iostream>
#include <span>
#include <sstream>
#include <string_view>

#include "harness/checker/checker.h"
#include "harness/inject/document_fault.h"
#include "harness/mutate/named_table.h"
#include "kernels/core/at.h"
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
    std::string judge;
    words >> judge;
    if (judge.ends_with(':')) judge.pop_back();
    if (judge != "bits") reason.judge = judge_from_text(judge);
    for (std::string word; words >> word;) reason.words.push_back(word);
    reasons.push_back(std::move(reason));
  }
  return reasons;
}

// The row with the longest beginning of the name.
template <std::size_t N>
const FaultRow& row_of(const std::array<FaultRow, N>& table, std::string_view name) {
  const FaultRow* best = nullptr;
  for (const FaultRow& row : table) {
    if (name.starts_with(row.name) && (!best || row.name.size() > best->name.size())) best = &row;
  }
  if (!best) std::cerr << "lockstep: no row for " << name << "\n";
  require(best, "every mutation has a row in harness/mutate/named_table.h");
  return *best;
}

class Catalogue {
 public:
  explicit Catalogue(const std::vector<MutationCase>& cases) : cases_(cases) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      experts_ = experts_ || has_layer(cases[i].scenario, 'E');
      sharded_ = sharded_ || with_reduction(cases[i].scenario);
      (cases[i].program ? fixture_programs_ : scenarios_).push_back(static_cast<int>(i));
    }
  }

  // A fault of experts or of sharding shows in no scenario without them.
  void add(const std::string& name, const FaultRow& row, std::string site, RunOptions plant) {
    if (row.has(kNoScenario) || (row.has(kNeedsExperts) && !experts_) ||
        (row.has(kNeedsShards) && !sharded_))
      return;  // Shows in nothing.
    std::vector<int> scenarios = scenarios_;
    std::erase_if(scenarios, [&](int i) {
      const Scenario& scenario = at(cases_, i).scenario;
      return (row.has(kNeedsExperts) && !has_layer(scenario, 'E')) ||
             (row.has(kNeedsShards) && !with_reduction(scenario));
    });
    std::vector<int> cases = row.has(kFixturesFirst) ? fixture_programs_ : scenarios;
    const std::vector<int>& later = row.has(kFixturesFirst) ? scenarios : fixture_programs_;
    cases.insert(cases.end(), later.begin(), later.end());
    faults_.push_back({.name = name,
                       .bug_class = std::string(row.bug_class),
                       .site = std::move(site),
                       .reasons = reasons_in(std::string(row.reasons)),
                       .plant = std::move(plant),
                       .removes_order = row.has(kRemovesOrder),
                       .cases = std::move(cases)});
  }
  std::vector<Fault> take() { return std::move(faults_); }

 private:
  const std::vector<MutationCase>& cases_;
  bool experts_ = false, sharded_ = false;
  std::vector<int> scenarios_, fixture_programs_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> named_faults(const std::vector<MutationCase>& cases) {
  Catalogue catalogue(cases);
  for (const std::span<const FaultRow> rows : {kernel_fault_rows(), engine_fault_rows()}) {
    for (const FaultRow& row : rows) {
      const std::string name(row.name);
      catalogue.add(name, row, std::string(fault_place(name)), {.planted = {.engine = name}});
    }
  }
  for (const FaultRow& row : document_fault_rows()) {
    const std::string name(row.name);
    catalogue.add(name, row, "scenarios/documents", {.planted = {.engine = name}});
  }
  for (const auto& name : oracle::Oracle::mutations()) {
    catalogue.add("oracle:" + name, row_of(kOracleRows, name), "oracle",
                  {.planted = {.oracle = name}});
  }
  for (const auto& name : Checker::mutations()) {
    catalogue.add("checker:" + name, row_of(kCheckerRows, name), "harness/checker",
                  {.planted = {.checker = name}});
  }
  return catalogue.take();
}

}  // namespace lockstep
