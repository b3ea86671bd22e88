// Sections of bench: the rate of the link, and the time of a step with offloading.
#include <algorithm>
#include <cstdio>

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
    std::printf("%-24s %7.2f GB/s to the host, %7.2f GB/s to the device\n", name,
                rate.to_host * 1e-9, rate.to_device * 1e-9);
  };
  print("pinned copies, one way", rates.alone);
  print("both ways at once", rates.both);
  print("both, beside steps", rates.beside);
  std::printf("%-24s %.3f ms/step, %.3f without copies (eager); %.1f %% of one way alone\n", "",
              rates.disturbed * 1e3, rates.step * 1e3, rates.kept() * 100);
  std::fflush(stdout);
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
  std::printf("%-16s %9s %11s %9s %9s %11s %12s %11s %9s %9s %9s %9s  %s\n", "offload", "fraction",
              "ms/step", "slower", "by model", "memory MB", "MB saved", "GB/s each", "of link",
              "nodes", "prefetch", "hidden", "fits");
  time_offload(scenario, device, budget, only, [&](const OffloadRow& row) {
    const std::string mode = row.time.mode + (row.captured ? " captured" : "");
    if (!row.time.not_run.empty()) {
      std::printf("%-16s not run: %s\n", mode.c_str(), row.time.not_run.c_str());
      rows.add("/offload/rows", {{"mode", row.time.mode}, {"not_run", row.time.not_run}});
      return;
    }
    const double rate = microbatches * static_cast<double>(row.bytes) / row.time.median;
    std::printf(
        "%-16s %9.2f %11.3f %7.1f %% %7.1f %% %11.1f %12.1f %11.2f %7.0f %% %7.0f %% %9d %7.0f %%  "
        "%s%s\n",
        mode.c_str(), row.fraction.value(), row.time.median * 1e3, row.slower() * 100,
        row.model.slower() * 100, static_cast<double>(row.time.peak_bytes) * 1e-6,
        static_cast<double>(row.saved) * 1e-6, rate * 1e-9, 2 * rate / one_way * 100,
        row.in_graphs * 100, row.prefetch, row.model.hidden() * 100,
        row.bytes == 0     ? ""
        : row.model.fits() ? "yes"
                           : "no",
        row.as_promised() ? "" : ", but more than 2 % slower");
    std::fflush(stdout);
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
