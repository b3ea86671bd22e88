// A section of bench: what the capacity of a pack costs.
#include <unistd.h>

#include <algorithm>

#include "harness/base/columns.h"
#include "harness/bench/packing.h"
#include "harness/bench/sections.h"

namespace lockstep {
namespace {

std::string row_of(const Columns& columns, const PackingRow& row) {
  std::vector<std::string> cells{
      formatted(columns.is_narrow() ? "%s %s" : "%-24s %-6s", row.name.c_str(), row.mode.c_str())};
  if (!row.not_run.empty()) return columns.row(cells, "not run: " + row.not_run);
  for (const double seconds : row.seconds) cells.push_back(formatted("%.1f us", seconds * 1e6));
  return columns.row(
      cells, formatted(columns.is_narrow() ? "%+.2f %%%s" : "%+7.2f %%%s", row.cost * 100,
                       row.as_promised() ? "" : ", more than the 1 % that our ops may cost"));
}

boost::json::object to_json(const PackingRow& row) {
  boost::json::object one{{"name", row.name}, {"mode", row.mode}};
  if (!row.not_run.empty()) {
    one["not_run"] = row.not_run;
    return one;
  }
  boost::json::array times;
  for (std::size_t i = 0; i < row.seconds.size(); ++i) {
    times.push_back(
        boost::json::object{{"capacity", kBenchCapacities[i]}, {"seconds", row.seconds[i]}});
  }
  one["times"] = std::move(times);
  one["cost_of_the_largest"] = row.cost;
  one["promised"] = row.promised;
  one["as_promised"] = row.as_promised();
  return one;
}

}  // namespace

void bench_packing(const Scenario& scenario, const std::string& device, double budget,
                   const std::string& only, BenchRows& rows) {
  rows.begin("/packing/rows");
  rows.set("/packing/documents", kBenchDocuments);
  print_fitted(formatted(
      "packs of %lld documents in %lld rows; last: time that the largest capacity adds\n",
      static_cast<long long>(kBenchDocuments), static_cast<long long>(scenario.data.pack_length)));
  std::vector<Column> list{{"packing", 31, "", 25}};
  for (const std::int64_t capacity : kBenchCapacities) {
    list.push_back({formatted("capacity %5lld", static_cast<long long>(capacity)), 15,
                    "at " + std::to_string(capacity), 11});
  }
  const Columns columns(std::move(list), terminal_at(STDOUT_FILENO));
  print_fitted(columns.head());
  time_packing(scenario, device, budget, only, [&](const PackingRow& row) {
    print_fitted(row_of(columns, row));
    rows.add("/packing/rows", to_json(row));
  });
  if (device == "sim") print_fitted("(times of the simulated device: they say nothing of a GPU)\n");
}

}  // namespace lockstep
