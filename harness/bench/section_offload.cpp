// Sections of bench: the rate of the link, and the time of a step with offloading.
#include <unistd.h>

#include <algorithm>

#include "harness/base/columns.h"
#include "harness/bench/offload.h"
#include "harness/bench/sections.h"

namespace lockstep {
namespace {

boost::json::object to_json(const LinkRate& rate) {
  return {{"to_host", rate.to_host}, {"to_device", rate.to_device}};
}

boost::json::object to_json(const LinkRates& rates) {
  return {{"alone", to_json(rates.alone)},
          {"both", to_json(rates.both)},
          {"beside_steps", to_json(rates.beside)},
          {"beside_steps_of_alone", rates.kept()},
          {"step_seconds", rates.step},
          {"step_seconds_beside_copies", rates.disturbed}};
}

LinkRates bench_link(const Scenario& scenario, const std::string& device, double budget) {
  const LinkRates rates = time_link(scenario, device, budget);
  const auto print = [](const char* name, const LinkRate& rate) {
    print_fitted(formatted("%-24s %7.2f GB/s to the host, %7.2f GB/s to the device\n", name,
                           rate.to_host * 1e-9, rate.to_device * 1e-9),
                 25);
  };
  print("pinned copies, one way", rates.alone);
  print("both ways at once", rates.both);
  print("both, beside steps", rates.beside);
  print_fitted(
      formatted("%-24s %.3f ms/step, %.3f without copies (eager); %.1f %% of one way alone\n", "",
                rates.disturbed * 1e3, rates.step * 1e3, rates.kept() * 100),
      0);
  return rates;
}

}  // namespace

void bench_offload(const Scenario& scenario, const std::string& device, double budget,
                   const std::string& only, BenchRows& rows) {
  const LinkRates link = bench_link(scenario, device, budget);
  rows.set("/offload/link", to_json(link));
  rows.begin("/offload/rows");
  const double one_way = std::min(link.alone.to_host, link.alone.to_device);
  const auto microbatches = static_cast<double>(scenario.training.microbatches);
  const Columns columns({{"offload", 16},
                         {"fraction", 10},
                         {"ms/step", 12},
                         {"slower", 10},
                         {"by model", 10},
                         {"memory MB", 12, "", 11},
                         {"MB saved", 13, "", 10},
                         {"GB/s each", 12, "", 11},
                         {"of link", 10},
                         {"nodes", 10, "", 9},
                         {"prefetch", 10, "", 9},
                         {"hidden", 10, "", 9}},
                        terminal_at(STDOUT_FILENO));
  print_fitted(columns.head("fits"));
  time_offload(scenario, device, budget, only, [&](const OffloadRow& row) {
    const std::string mode = row.time.mode + (row.captured ? " captured" : "");
    if (!row.time.not_run.empty()) {
      print_fitted(columns.row({mode}, "not run: " + row.time.not_run));
      rows.add("/offload/rows", {{"mode", row.time.mode}, {"not_run", row.time.not_run}});
      return;
    }
    const double rate = microbatches * static_cast<double>(row.bytes) / row.time.median;
    const std::string fits = row.bytes == 0 ? "" : row.model.fits() ? "yes" : "no";
    print_fitted(columns.row(
        {mode, formatted("%.2f", row.fraction.value()), formatted("%.3f", row.time.median * 1e3),
         formatted("%.1f %%", row.slower() * 100), formatted("%.1f %%", row.model.slower() * 100),
         formatted("%.1f", static_cast<double>(row.time.peak_bytes) * 1e-6),
         formatted("%.1f", static_cast<double>(row.saved) * 1e-6), formatted("%.2f", rate * 1e-9),
         formatted("%.0f %%", 2 * rate / one_way * 100), formatted("%.0f %%", row.in_graphs * 100),
         std::to_string(row.prefetch), formatted("%.0f %%", row.model.hidden() * 100)},
        fits + (row.as_promised() ? "" : ", but more than 2 % slower")));
    boost::json::object one = to_json(row.time);
    one["fraction"] = row.fraction.value();
    one["captured"] = row.captured;
    one["copies_in_graphs"] = row.in_graphs;
    one["plain_seconds"] = row.plain;
    one["bytes_of_a_microbatch"] = row.bytes;
    one["bytes_per_second_each_way"] = rate;
    one["both_ways_of_one_way_rate"] = 2 * rate / one_way;
    one["saved_bytes_planned"] = row.saved;
    one["prefetch"] = row.prefetch;
    one["hidden_by_the_model"] = row.model.hidden();
    one["slower_by_the_model"] = row.model.slower();
    one["fits_under_compute"] = row.model.fits();
    one["as_promised"] = row.as_promised();
    rows.add("/offload/rows", std::move(one));
  });
}

}  // namespace lockstep
