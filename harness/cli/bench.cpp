// `lockstep bench [FILE|H1|S1]`: scenarios a second, the time of every op, the time of a step with
// and without graphs.
#include <algorithm>
#include <array>
#include <cstdio>

#include "harness/base/columns.h"
#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/version.h"
#include "harness/bench/model.h"
#include "harness/bench/sections.h"
#include "harness/case/schedules.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/page/bench_page.h"
#include "harness/page/page.h"
#include "harness/page/rows_table.h"
#include "harness/peer/section.h"
#include "harness/ranks/sections.h"
#include "harness/report/report.h"
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

// --peer is a section that has an option of its own, and is not one of all.
constexpr char kPeerSection[] = "peer";
std::string section_of(const Options& options) {
  const std::string named = options.text("section");
  if (!options.has("peer")) return named;
  if (named != "all" || options.has("only"))
    throw RequestError(
        "--peer measures the step alone, in all modes: leave --section and --only out");
  return kPeerSection;
}

Request request_of(const Options& options) {
  Request request;
  request.scenario.name = "bench";
  if (!options.words().empty()) {
    const std::string& word = options.words().front();
    if (const auto model = standard_model(word)) {
      request = {*model, true};
      const std::string section = options.text("section");
      if (section == "offload" || section == "pipeline") {
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
    print_fitted(formatted("%-16s the %lld microbatches of %lld ranks, by one\n", "",
                           static_cast<long long>(s.training.microbatches),
                           static_cast<long long>(scenario.parallel.data)));
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

// Says at once what is measured: a first row may take minutes.
void say_what_runs(const Request& request, const std::string& device) {
  if (device == "cuda") return;
  std::fprintf(stderr,
               "lockstep bench: measures the simulated device here; its times say nothing of a "
               "GPU%s\n",
               request.standard ? (", and a step of " + request.scenario.name +
                                   ", which has the size for one, takes minutes")
                                      .c_str()
                                : "");
}
void say_section(const char* name) { std::fprintf(stderr, "lockstep bench: section %s\n", name); }

void measure(const Options& options, const Request& request, const std::string& device,
             BenchRows& rows) {
  const std::string section = section_of(options), only = options.text("only");
  const double budget = options.seconds("budget");
  const bool all = section == "all";
  const auto begins = [&](const char* name, bool among_all) {
    const bool runs = section == name || (all && among_all);
    if (runs) say_section(name);
    return runs;
  };
  // Before this process opens a GPU.
  if (begins("fsdp", false)) bench_fsdp(request.scenario, options, device, rows);
  if (begins("pipeline", false)) bench_pipeline(request.scenario, options, device, rows);
  if (begins("experts", false)) bench_experts(request.scenario, options, device, rows);
  if (section == "offload") leave_two_channels();
  if (section == kPeerSection) {
    say_section("peer");
    bench_peer(on_one_device(request.scenario), device, options.text("python"), budget, rows);
  }
  rows.set("/device", to_json(open_backend(device, {})->info()));
  if (begins("scenarios", !request.standard)) bench_scenarios(request.scenario, budget, rows);
  constexpr std::array kOnOneDevice{"kernels", "step",       "offload",
                                    "memory",  "precisions", "packing"};
  if (all || std::ranges::find(kOnOneDevice, section) != kOnOneDevice.end()) {
    const Scenario alone = on_one_device(request.scenario);
    if (begins("kernels", true)) bench_kernels(alone, device, only, rows);
    if (begins("step", true)) bench_steps(alone, device, budget, only, rows);
    if (begins("offload", false)) bench_offload(alone, device, budget, only, rows);
    if (begins("memory", false)) bench_memory(alone, device, budget, only, rows);
    if (begins("precisions", false)) bench_precisions(alone, only, rows);
    if (begins("packing", false)) bench_packing(alone, device, budget, only, rows);
  }
  if (begins("schedules", true)) bench_schedules(budget, rows);
  if (begins("checker", !request.standard)) bench_checker(options, device, rows);
  if (begins("door", false)) bench_dispatch(options.number("cases"), rows);
}

// A case for each time that was measured, so that a dashboard has its history.
std::vector<CaseResult> times_of(const boost::json::value& found) {
  constexpr struct {
    const char *rows, *name, *seconds;
  } kLists[] = {
      {"/steps", "mode", "median_seconds"},        {"/kernels", "op", "seconds"},
      {"/offload/rows", "mode", "median_seconds"}, {"/memory/rows", "memory", "median_seconds"},
      {"/fsdp/rows", "mode", "step_seconds"},      {"/pipeline/rows", "mode", "step_seconds"},
      {"/experts/rows", "mode", "step_seconds"},   {"/peer/rows", "mode", "median_seconds"}};
  std::vector<CaseResult> list;
  for (const auto& [rows, name, seconds] : kLists) {
    for (const boost::json::value& value : rows_at(found, rows)) {
      const boost::json::object& row = value.as_object();
      CaseResult one;
      one.name = text_in(row, name);
      for (const char* more : {"fraction", "in_flight"}) {
        if (row.contains(more)) one.name += std::string(" ") + more + " " + text_in(row, more);
      }
      const std::string section(rows + 1);
      one.numerics = "bench." + section.substr(0, section.find('/'));
      const boost::json::value* time = row.if_contains(seconds);
      if (time != nullptr && time->is_number()) {
        one.seconds = time->to_number<double>();
      } else {
        one.verdict = Verdict::skipped;
        one.reason = text_in(row, "not_run");
      }
      list.push_back(std::move(one));
    }
  }
  return list;
}

void write_found(const Options& options, const BenchRows& rows, bool interrupted) {
  boost::json::object found = rows.found();
  if (interrupted) found["interrupted"] = true;
  write_reports(options, junit(times_of(found), interrupted), found, bench_page);
}

}  // namespace

Options bench_options() {
  Options options(
      "bench", "[FILE|H1|S1]",
      "scenarios: engine, oracle and comparison on one core of the simulated device, a second.\n"
      "kernels: every op of a step by itself, beside the rate of a copy.\n"
      "step: the median time of a step eager, with partial graphs and with one graph of the whole "
      "step.\n"
      "offload: the link's rate alone and beside steps; step time and device memory by fraction.\n"
      "memory: device memory with and without shared memory of graphs, by microbatches in flight.\n"
      "precisions: device memory in bf16 and fp8 by microbatches in flight, and what ranks gather; "
      "nothing runs.\n"
      "packing: what a larger capacity costs each op that works on documents, and a step.\n"
      "fsdp: step time of several ranks beside that of its work and of its exchanges, by "
      "strategy.\n"
      "pipeline: step time of two stages with one and two chunks, its bubble beside the ideal one, "
      "and what transfers cost.\n"
      "experts: step time of ranks that share experts, what the exchange of rows costs, and its "
      "rate "
      "beside bare calls.\n"
      "schedules: those of a small program that run by tags.\n"
      "checker: runs of the file, or of the library, with and without checking.\n"
      "door: what random cases ask of a device.\n"
      "offload, memory, precisions, packing, fsdp, pipeline, experts and door are not part of "
      "all.\n"
      "H1 and S1 are the standard models; the oracle is left out for them.",
      1);
  options.device().deadline().seconds("budget", "seconds for each measurement", 5);
  options.choice("section",
                 "all, scenarios, kernels, step, offload, memory, precisions, packing, fsdp, "
                 "pipeline, experts, schedules, checker or door",
                 {"all", "scenarios", "kernels", "step", "offload", "memory", "precisions",
                  "packing", "fsdp", "pipeline", "experts", "schedules", "checker", "door"},
                 "all");
  options.text("only",
               "kernels: ops whose name or shape holds this text; step: modes; offload: modes, or "
               "modes and fractions, such as partial@0.25; memory: separate or shared; packing: "
               "names and modes; fsdp: strategies, modes; pipeline, experts: modes");
  options.flag("peer",
               "the step and PyTorch's of the same model by turns on this GPU, and the ratio");
  options.text("python", "peer: the Python that has PyTorch", "python3");
  options.number(
      "ranks",
      "fsdp, experts: how many; 0: as many as there are GPUs, at least 2. pipeline: stages; 0: 2",
      0, 0);
  options.number("cases", "door: how many random ones", 200, 1);
  options.text("json", "write the numbers to this file")
      .text("junit", "write a case for each time to this file, for dashboards")
      .text("html", "draw them on a page for people");
  options
      .example("lockstep bench H1 --section step",
               "the standard model eager, with partial graphs and as one graph")
      .example("lockstep bench H1 --peer", "the step beside PyTorch's in the same minutes")
      .example("lockstep bench H1 --section offload --html offload.html",
               "step time and memory over the offloaded fraction, drawn");
  return options;
}

ExitStatus bench_command(const Words& words) {
  Options options = bench_options();
  if (!options.parse(words)) return ExitStatus::held;
  InterruptGuard guard;
  const InterruptGuard::AtEnd unless_there_is_more(guard, without_results(words));
  const CommandFiles files(options);
  const std::string section = section_of(options);
  const Request request = request_of(options);
  if (request.standard && (section == "scenarios" || section == "checker")) {
    throw RequestError("--section " + section + ": " + request.scenario.name +
                       " is too large for the oracle");
  }
  const std::string device = choose_device(options.text("device"));
  BenchRows rows({{"tool", "lockstep"},
                  {"version", version()},
                  {"revision", revision()},
                  {"scenario", request.scenario.name}});
  const InterruptGuard::AtEnd at_end(guard, [&] { write_found(options, rows, true); });
  say_what_runs(request, device);
  bool interrupted = false;
  try {
    measure(options, request, device, rows);
  } catch (const Interrupted&) {
    interrupted = true;
  }
  guard.take_over();
  if (!interrupted && options.has("only"))
    require_rows(rows.found(), section, options.text("only"));
  write_found(options, rows, interrupted);
  if (interrupted) say_interrupted();
  return interrupted ? ExitStatus::gave_up : ExitStatus::held;
}

}  // namespace lockstep
