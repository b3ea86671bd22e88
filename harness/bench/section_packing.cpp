// A section of bench: what the capacity of a pack costs.
#include <algorithm>
#include <cstdio>

#include "harness/bench/packing.h"
#include "harness/bench/sections.h"

namespace lockstep {
namespace {

void print_row(const PackingRow& row) {
  std::printf("%-24s %-6s", row.name.c_str(), row.mode.c_str());
  if (!row.not_run.empty()) {
    std::printf(" not run: %s\n", row.not_run.c_str());
    return;
  }
  for (const double seconds : row.seconds) std::printf(" %11.1f us", seconds * 1e6);
  std::printf("  %+7.2f %%%s\n", row.cost * 100,
              row.as_promised() ? "" : ", more than the 1 % that our ops may cost");
  std::fflush(stdout);
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
  std::printf(
      "packs of %lld documents in %lld rows; last: time that the largest capacity adds\n%-31s",
      static_cast<long long>(kBenchDocuments), static_cast<long long>(scenario.data.pack_length),
      "packing");
  for (const std::int64_t capacity : kBenchCapacities)
    std::printf(" capacity %5lld", static_cast<long long>(capacity));
  std::printf("\n");
  time_packing(scenario, device, budget, only, [&](const PackingRow& row) {
    print_row(row);
    rows.add("/packing/rows", to_json(row));
  });
  if (device == "sim") std::printf("(times of the simulated device: they say nothing of a GPU)\n");
}

}  // namespace lockstep
