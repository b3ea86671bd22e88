// A step of several ranks beside that of its work and of its exchanges.
#include "harness/base/columns.h"
#include "harness/ranks/fsdp.h"
#include "harness/ranks/ranks_of_section.h"
#include "harness/ranks/sections.h"

namespace lockstep {
namespace {

boost::json::object to_json(const FsdpTimes& one) {
  if (!one.not_run.empty()) return {{"mode", one.mode}, {"not_run", one.not_run}};
  return {{"mode", one.mode},
          {"step_seconds", one.step},
          {"compute_seconds", one.compute},
          {"communication_seconds", one.communication},
          {"exposed_seconds", one.exposed()},
          {"host_seconds", one.host ? boost::json::value(*one.host) : nullptr},
          {"over_the_larger", one.over_the_larger()},
          {"gathers", to_json(one.gathers)},
          {"reductions", to_json(one.reductions)}};
}

constexpr std::size_t kNameWidth = 29;  // With the blank behind it.

void print_fsdp(const FsdpTimes& one) {
  if (!one.not_run.empty()) {
    print_fitted(formatted("%-28s not run: %s\n", one.mode.c_str(), one.not_run.c_str()),
                 kNameWidth);
    return;
  }
  print_fitted(formatted("%-28s %9.3f ms/step, %9.3f without exchanges, %8.3f of exchanges alone: "
                         "%8.3f exposed, %.3f of the larger\n",
                         one.mode.c_str(), one.step * 1e3, one.compute * 1e3,
                         one.communication * 1e3, one.exposed() * 1e3, one.over_the_larger()),
               kNameWidth);
  if (one.host) {
    print_fitted(
        formatted("%-28s host: %.3f ms, meeting the others included\n", "", *one.host * 1e3));
  }
  print_exchange("gathers", one.gathers);
  print_exchange("reductions", one.reductions);
}

}  // namespace

void bench_fsdp(const Scenario& scenario, const Options& options, const std::string& device,
                BenchRows& rows) {
  Scenario s = scenario;
  s.parallel.data = ranks_asked_for(options, device);
  bench_ranks({"fsdp", kNameWidth}, s, options, device, rows,
              [&](const Scenario& one, const LocalRanks& ranks, const auto& add) {
                time_fsdp(one, device, ranks, options.text("only"), options.seconds("budget"),
                          [&](const FsdpTimes& times) { print_fsdp(times), add(to_json(times)); });
              });
}

}  // namespace lockstep
