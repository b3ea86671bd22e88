// docs/relations-and-faults.md: which relation finds which of the engine's planted faults through
// the wire. The table names every fault; each of its rows is tried in the slow tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "harness/base/interrupts.h"
#include "harness/foreign/engine_host.h"
#include "harness/inject/fault_table.h"
#include "tests/harness/foreign/own_engine.h"

namespace lockstep {
namespace {

using foreign::EngineHost;
using foreign::EngineResult;

constexpr std::size_t kLeastPercent = 80;           // Faults of the engine.
constexpr std::size_t kLeastPercentOfKernels = 70;  // Most of the rest only change an order.

struct Row {
  std::string fault, bug_class, relation, judge, scenario;
  bool is_found() const { return relation != "none"; }
};

std::string table_path() { return root_path() + "/docs/relations-and-faults.md"; }

// Lines "| `fault` | class | relation | judge | scenario |".
std::vector<Row> rows_of_the_document() {
  std::vector<Row> rows;
  std::istringstream text(slurp(table_path()));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("| `")) continue;
    std::istringstream cells(line.substr(2));
    std::vector<std::string> words;
    for (std::string cell; std::getline(cells, cell, '|');) {
      const std::size_t first = cell.find_first_not_of(" `"), last = cell.find_last_not_of(" `");
      words.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    if (words.size() == 5) rows.push_back({words[0], words[1], words[2], words[3], words[4]});
  }
  return rows;
}

const std::map<std::string, Scenario>& all_scenarios() {
  static const std::map<std::string, Scenario> list = [] {
    std::map<std::string, Scenario> all = own_engine_scenarios();
    all.insert(library_scenarios().begin(), library_scenarios().end());
    return all;
  }();
  return list;
}

// Without a reference for fp8 no relation knows what its kernels must compute.
bool has_a_reference(const FaultRow& fault) { return !fault.name.starts_with("fp8-"); }

// Several chunks and several stages are none of the protocol's.
bool is_offered(const Row& row) { return !row.scenario.starts_with("the protocol offers one"); }

// Faults of the engine, then of the kernels, which are wrong in graphs and without alike.
std::vector<FaultRow> all_faults() {
  std::vector<FaultRow> all(engine_fault_rows().begin(), engine_fault_rows().end());
  all.insert(all.end(), kernel_fault_rows().begin(), kernel_fault_rows().end());
  return all;
}

bool is_of_a_kernel(const std::string& name) {
  return std::ranges::any_of(kernel_fault_rows(),
                             [&](const FaultRow& fault) { return fault.name == name; });
}

// The first scenario and relation that find a fault: first of those that shard as the fault needs
// it, or that show what a model computes, then of the others. LOCKSTEP_ONLY: only these scenarios.
Row found(const FaultRow& fault) {
  Row row{std::string(fault.name), std::string(fault.bug_class), "none", "", ""};
  const char* const only = std::getenv("LOCKSTEP_ONLY");
  std::vector<std::pair<std::string, Scenario>> list(all_scenarios().begin(),
                                                     all_scenarios().end());
  const bool kernel = is_of_a_kernel(row.fault);
  std::ranges::stable_partition(list, [&](const auto& one) {
    if (kernel) return one.first.starts_with("model-");
    return fault.has(kNeedsShards) == (one.second.fsdp.strategy != Sharding::no_shard);
  });
  for (const auto& [name, scenario] : list) {
    if (only != nullptr && std::string(only).find(" " + name + " ") == std::string::npos) continue;
    EngineHost host(
        {.command = own_engine_for(scenario, row.fault), .deadline_s = 20, .stop_at_first = true});
    const EngineResult result = host.judge(scenario);
    if (result.result.verdict == Verdict::holds || result.result.verdict == Verdict::skipped)
      continue;
    row.relation = result.relation.substr(0, result.relation.find(':'));
    row.judge = to_text(result.result.judge);
    row.scenario = name;
    return row;
  }
  return row;
}

TEST(FaultRelations, TheTableNamesEveryFaultAndFindsMost) {
  std::map<std::string, Row> rows;
  for (const Row& row : rows_of_the_document()) rows[row.fault] = row;
  std::size_t of_engine = 0, of_kernels = 0, offered = 0;
  const auto kernels = std::ranges::count_if(kernel_fault_rows(), has_a_reference);
  for (const FaultRow& fault : all_faults()) {
    const auto row = rows.find(std::string(fault.name));
    ASSERT_NE(row, rows.end()) << fault.name << " is not in " << table_path();
    EXPECT_EQ(row->second.bug_class, fault.bug_class);
    if (!is_of_a_kernel(row->first)) {
      of_engine += row->second.is_found();
      offered += is_offered(row->second);
    }
    if (is_of_a_kernel(row->first) && has_a_reference(fault)) of_kernels += row->second.is_found();
  }
  EXPECT_EQ(rows.size(), all_faults().size());
  EXPECT_GE(100 * of_engine, kLeastPercent * offered) << of_engine;
  EXPECT_GE(100 * of_kernels, kLeastPercentOfKernels * kernels) << of_kernels;
}

// Every row again, by its relation alone, or by LOCKSTEP_RELATION, which then says what it finds.
// Writes the table anew where LOCKSTEP_WRITE_TABLE names a
// file; LOCKSTEP_FAULT selects one.
TEST(FaultRelations, EachRowIsTrue) {
  const Interrupts pipes;
  const char* const write_to = std::getenv("LOCKSTEP_WRITE_TABLE");
  const char* const only = std::getenv("LOCKSTEP_FAULT");
  if (write_to != nullptr) {
    for (const FaultRow& fault : all_faults()) {
      if (only != nullptr && fault.name != only) continue;
      const Row row = found(fault);
      std::ofstream(write_to, std::ios::app)
          << "| `" << row.fault << "` | " << row.bug_class << " | " << row.relation << " | "
          << row.judge << " | " << row.scenario << " |" << std::endl;
    }
    return;
  }
  for (const Row& row : rows_of_the_document()) {
    if (!row.is_found() || (only != nullptr && row.fault != only)) continue;
    const Scenario& scenario = all_scenarios().at(row.scenario);
    const char* const other = std::getenv("LOCKSTEP_RELATION");
    EngineHost host(
        {.command = own_engine_for(scenario, row.fault),
         .deadline_s = 20,
         .relations = {foreign::asked_relation(other != nullptr ? other : row.relation)}});
    const EngineResult result = host.judge(scenario);
    if (other != nullptr) {
      std::cout << row.fault << ": " << to_text(result.result.verdict) << std::endl;
      continue;
    }
    EXPECT_NE(result.result.verdict, Verdict::holds) << row.fault << " by " << row.relation;
    EXPECT_NE(result.result.verdict, Verdict::skipped) << row.fault << " by " << row.relation;
  }
}

}  // namespace
}  // namespace lockstep
