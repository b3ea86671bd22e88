// `lockstep bench [FILE|H1|S1]`: scenarios a second, the time of every op, the time of a step with
// and without graphs.
#include <cstdio>

#include "harness/base/options.h"
#include "harness/base/version.h"
#include "harness/base/write_file.h"
#include "harness/bench/model.h"
#include "harness/bench/sections.h"
#include "harness/case/schedules.h"
#include "harness/cli/commands.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/refusal.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

struct Request {
  Scenario scenario;
  bool standard = false;  // Too large for the oracle.
};

Request request_of(const Options& options) {
  Request request;
  request.scenario.name = "bench";
  if (!options.words().empty()) {
    const std::string& word = options.words().front();
    if (const auto model = standard_model(word)) {
      request = {*model, true};
      if (options.text("section") == "offload") {
        request.scenario.training.microbatches = 8;
        request.scenario.training.in_flight = 4;
      }
      return request;
    }
    const ReadResult read = read_scenario_file(word);
    if (!read.ok()) throw refusal(read.errors);
    request.scenario = read.scenario;
  }
  request.scenario.numerics.resize(1);
  return request;
}

// The scenario that measures one device: one rank, which has the microbatches of all, and no
// delays.
Scenario on_one_device(const Scenario& scenario) {
  Scenario s = by_one_rank(scenario);
  s.checker.delays.clear();
  // In an op measured alone, poison would destroy the documents of the ops after it.
  s.checker.poison.clear();
  s.expect = {};
  if (scenario.parallel.data > 1) {
    std::printf("%-16s the %lld microbatches of %lld ranks, by one\n", "",
                static_cast<long long>(s.training.microbatches),
                static_cast<long long>(scenario.parallel.data));
  }
  return s;
}

// A name that nothing has is no measurement.
void require_rows(const boost::json::object& found, const std::string& section,
                  const std::string& only) {
  const std::string path = section == "kernels" ? "/kernels"
                           : section == "step"  ? "/steps"
                                                : "/" + section + "/rows";
  const boost::json::value all = found;
  boost::system::error_code none;
  const boost::json::value* rows = all.find_pointer(path, none);
  if (rows != nullptr && rows->as_array().empty()) {
    throw RequestError("--only " + only + ": nothing in section " + section + " has such a name");
  }
}

}  // namespace

ExitStatus bench_command(const Words& words) {
  Options options(
      "bench", "[FILE|H1|S1]",
      "scenarios: engine, oracle and comparison on one core of the simulated device, a second.\n"
      "kernels: every op of a step by itself, beside the rate of a copy.\n"
      "step: the median time of a step eager, with partial graphs and with one graph of the whole "
      "step.\n"
      "offload: the link's rate alone and beside steps; step time and device memory by fraction.\n"
      "fsdp: step time of several ranks beside that of its work and of its exchanges, by "
      "strategy.\n"
      "schedules: those of a small program that run by tags.\n"
      "checker: runs of the file, or of the library, with and without checking.\n"
      "door: what 200 random cases ask of a device.\n"
      "offload, fsdp and door are not part of all.\n"
      "H1 and S1 are the standard models; the oracle is left out for them.",
      1);
  options.device().deadline().seconds("budget", "seconds for each measurement", 5);
  options.choice(
      "section", "all, scenarios, kernels, step, offload, fsdp, schedules, checker or door",
      {"all", "scenarios", "kernels", "step", "offload", "fsdp", "schedules", "checker", "door"},
      "all");
  options.text("only",
               "kernels: ops whose name or shape holds this text; step, offload: modes; fsdp: "
               "strategies, modes");
  options.number("ranks", "fsdp: how many; 0: as many as there are GPUs, at least 2", 0, 0);
  options.text("json", "write the numbers to this file");
  if (!options.parse(words)) return ExitStatus::held;
  const std::string section = options.text("section");
  const auto wanted = [&](const char* name) { return section == "all" || section == name; };
  const Request request = request_of(options);
  if (request.standard && (section == "scenarios" || section == "checker")) {
    throw RequestError("--section " + section + ": " + request.scenario.name +
                       " is too large for the oracle");
  }
  const std::string device = choose_device(options.text("device"));
  const double budget = options.seconds("budget");

  boost::json::object sharded;
  // Must precede the opening of a GPU in this process.
  if (section == "fsdp") sharded = bench_fsdp(request.scenario, options, device);
  boost::json::object found{{"tool", "lockstep"},
                            {"version", version()},
                            {"revision", revision()},
                            {"scenario", request.scenario.name},
                            {"device", to_json(open_backend(device, {})->info())}};
  const auto add = [&](boost::json::object section_found) {
    for (auto& [key, value] : section_found) found[key] = value;
  };
  if (wanted("scenarios") && !request.standard) add(bench_scenarios(request.scenario, budget));
  if (wanted("kernels") || wanted("step") || section == "offload") {
    const Scenario alone = on_one_device(request.scenario);
    if (wanted("kernels")) add(bench_kernels(alone, device, options.text("only")));
    if (wanted("step")) add(bench_steps(alone, device, budget, options.text("only")));
    if (section == "offload") add(bench_offload(alone, device, budget, options.text("only")));
  }
  add(std::move(sharded));
  if (wanted("schedules")) add(bench_schedules(budget));
  if (wanted("checker") && !request.standard) add(bench_checker(options, device));
  if (section == "door") add(bench_dispatch(200));
  if (options.has("only")) require_rows(found, section, options.text("only"));
  if (options.has("json")) write_file(options.text("json"), boost::json::serialize(found) + "\n");
  return ExitStatus::held;
}

}  // namespace lockstep
