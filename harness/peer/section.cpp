#include "harness/peer/section.h"

#include <algorithm>

#include "harness/base/columns.h"
#include "harness/base/errors.h"
#include "harness/bench/median.h"
#include "harness/peer/peer.h"
#include "harness/report/report.h"

namespace lockstep {
namespace {

boost::json::object to_json(const PeerRow& row) {
  boost::json::object one{{"mode", row.side + " " + row.mode}, {"bytes", row.bytes}};
  if (row.times.empty()) {
    one["not_run"] = row.not_run;
    return one;
  }
  one["steps"] = row.times.size();
  one["median_seconds"] = median(row.times);
  one["fastest_seconds"] = *std::min_element(row.times.begin(), row.times.end());
  return one;
}

void print_row(const PeerRow& row) {
  const std::string name = row.side + " " + row.mode;
  if (row.times.empty())
    return print_fitted(formatted("%-24s not run: %s\n", name.c_str(), row.not_run.c_str()), 25);
  print_fitted(formatted("%-24s %8.3f ms/step     (median of %zu, fastest %.3f; %.2f GiB)\n",
                         name.c_str(), median(row.times) * 1e3, row.times.size(),
                         *std::min_element(row.times.begin(), row.times.end()) * 1e3,
                         static_cast<double>(row.bytes) / (1 << 30)),
               25);
}

}  // namespace

void bench_peer(const Scenario& scenario, const std::string& device, const std::string& python,
                double budget, BenchRows& rows) {
  if (scenario.numerics.front() == Numerics::fp32)
    throw RequestError("--peer: PyTorch's step is in bf16: `numerics` must be [bf16] or [fp8]");
  rows.begin("/peer/rows");
  const PeerTimes times = time_beside_peer(scenario, device, python, budget);
  for (const PeerRow& row : times.rows) {
    print_row(row);
    rows.add("/peer/rows", to_json(row));
  }
  rows.set("/peer/torch", boost::json::string(times.version));
  rows.set("/peer/device", boost::json::string(times.device));
  const auto any = [](const std::string&) { return true; };
  const double own = fastest_median(times, kOwnSide, any);
  // Ours is deterministic in every mode.
  const auto compare = [&](const char* with, const char* at, double theirs) {
    if (own == 0 || theirs == 0) return;
    print_fitted(
        formatted("%-24s %8.3f        (%.3f ms of lockstep, %.3f of PyTorch %s%s)\n",
                  formatted("ratio to %s", with).c_str(), own / theirs, own * 1e3, theirs * 1e3,
                  times.version.c_str(), own < theirs ? ", lockstep is faster" : ""),
        25);
    rows.set(at, own / theirs);
  };
  compare("its best", "/peer/ratio", fastest_median(times, kPeerSide, any));
  compare("its deterministic", "/peer/ratio_deterministic",
          fastest_median(times, kPeerSide,
                         [](const std::string& mode) { return mode == "deterministic"; }));
}

}  // namespace lockstep
