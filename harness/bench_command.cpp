// `lockstep bench [FILE|H1|S1]`: scenarios a second, the time of every op, the time of a step with and without graphs.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "harness/bench/checker.h"
#include "harness/bench/door.h"
#include "harness/bench/fsdp.h"
#include "harness/bench/kernels.h"
#include "harness/bench/model.h"
#include "harness/bench/offload.h"
#include "harness/bench/schedules.h"
#include "harness/bench/steps.h"
#include "harness/commands.h"
#include "harness/device_choice.h"
#include "harness/launch.h"
#include "harness/library.h"
#include "harness/options.h"
#include "harness/refusal.h"
#include "harness/report.h"
#include "harness/result_json.h"
#include "harness/runner.h"
#include "harness/schedules.h"
#include "harness/stopwatch.h"
#include "harness/version.h"
#include "harness/write_file.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

constexpr double kTensorPeak = 989e12;  // Dense bf16 of an H200, by its maker: what utilisation is a share of.

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

// What one device is measured with: one rank, which has the microbatches of all, and nothing put in its way.
Scenario on_one_device(const Scenario& scenario) {
  Scenario s = by_one_rank(scenario);
  s.checker.delays.clear();
  s.checker.poison.clear();  // As an op by itself it would take the documents from the ops after it.
  s.expect = {};
  if (scenario.parallel.data > 1) {
    std::printf("%-16s the %lld microbatches of %lld ranks, by one\n", "",
                static_cast<long long>(s.training.microbatches), static_cast<long long>(scenario.parallel.data));
  }
  return s;
}

// ---- Scenarios a second ---------------------------------------------------------------------------------------------

// Engine, oracle and comparison, in this process and on this core.
boost::json::object bench_scenarios(const Scenario& scenario, double budget) {
  std::int64_t done = 0;
  const Stopwatch watch;
  do {
    Scenario one = scenario;
    one.checker.schedule.seed += done;
    const CaseResult result = run_case(one, {});
    if (result.verdict != Verdict::holds) throw WorldError("bench: " + failure_block(result));
    ++done;
  } while (watch.seconds() < budget);
  const double seconds = watch.seconds(), rate = static_cast<double>(done) / seconds;
  std::printf("%-16s %8.2f scenarios/s  (%lld in %.2f s, sim, one core)\n", "verify", rate,
              static_cast<long long>(done), seconds);
  return {{"scenarios", done}, {"scenario_seconds", seconds}, {"scenarios_per_second", rate}};
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

void print_kernel(const KernelTime& one) {
  const bool moves = one.work.bound == Bound::bandwidth;
  std::printf("%-60s %4d x %9.1f us  %8.1f %-7s", one.op.c_str(), one.times, one.seconds * 1e6,
              (moves ? one.work.bytes * 1e-9 : one.work.flop * 1e-12) / one.seconds, moves ? "GB/s" : "TFLOP/s");
  if (one.ceiling > 0) std::printf("  %5.1f %%", one.ceiling / one.seconds * 100);
  std::printf("\n");
  std::fflush(stdout);
}

boost::json::array to_json(const std::vector<KernelTime>& times) {
  boost::json::array list;
  for (const KernelTime& one : times) {
    list.push_back(boost::json::object{{"op", one.op},
                                       {"times", one.times},
                                       {"seconds", one.seconds},
                                       {"ceiling_seconds", one.ceiling},
                                       {"flop", one.work.flop},
                                       {"bytes", one.work.bytes}});
  }
  return list;
}

boost::json::object bench_kernels(const Scenario& scenario, const std::string& device, const std::string& only) {
  const KernelTimes times = time_kernels(scenario, device, only, print_kernel);
  double sum = 0;
  for (const KernelTime& one : times.list) sum += one.times * one.seconds;
  std::printf("%-60s        %9.3f ms a step by itself", "all of these", sum * 1e3);
  if (times.copy_bytes_per_second > 0) std::printf("; copy %.1f GB/s", times.copy_bytes_per_second * 1e-9);
  std::printf("\n");
  if (!times.no_cudnn.empty()) std::printf("attention has no ceiling: %s\n", times.no_cudnn.c_str());
  return {{"copy_bytes_per_second", times.copy_bytes_per_second},
          {"cudnn", to_json(times.cudnn)},
          {"no_cudnn", times.no_cudnn},
          {"kernels", to_json(times.list)}};
}

// ---- Steps ----------------------------------------------------------------------------------------------------------

void print_step(const StepTime& one, const std::string& device) {
  if (!one.not_run.empty()) {
    std::printf("%-16s not run: %s\n", one.mode.c_str(), one.not_run.c_str());
    return;
  }
  std::printf("%-16s %8.3f ms/step     (median of %lld, fastest %.3f, %s)\n", one.mode.c_str(), one.median * 1e3,
              static_cast<long long>(one.steps), one.fastest * 1e3, device.c_str());
  std::printf(
      "%-16s %8.0f tokens/s, %.1f TFLOP/s, utilisation %.1f %%; host %.3f ms in %.0f calls for %.0f ops; "
      "%.2f GiB; products: %d by a library, %d by our kernel (%lld calls)\n",
      "", one.tokens / one.median, one.flop / one.median * 1e-12, one.flop / one.median / kTensorPeak * 100,
      one.host * 1e3, one.submissions, one.ops, static_cast<double>(one.peak_bytes) / (1 << 30), one.plans.library,
      one.plans.own, static_cast<long long>(one.plans.own_calls));
  std::fflush(stdout);
}

boost::json::object to_json(const DeviceClocks& clocks) {
  return {{"sm_mhz", clocks.sm_mhz}, {"memory_mhz", clocks.memory_mhz}, {"power_watts", clocks.power_watts}};
}

boost::json::object to_json(const StepTime& one) {
  if (!one.not_run.empty()) return {{"mode", one.mode}, {"not_run", one.not_run}};
  return {{"mode", one.mode},
          {"steps", one.steps},
          {"median_seconds", one.median},
          {"fastest_seconds", one.fastest},
          {"host_seconds", one.host},
          {"calls", one.submissions},
          {"ops", one.ops},
          {"tokens", one.tokens},
          {"tokens_per_second", one.tokens / one.median},
          {"flop", one.flop},
          {"utilisation", one.flop / one.median / kTensorPeak},
          {"peak_bytes", one.peak_bytes},
          {"products_by_library", one.plans.library},
          {"products_by_own_kernel", one.plans.own},
          {"calls_of_own_kernel", one.plans.own_calls},
          {"clocks", to_json(one.clocks)}};
}

boost::json::object bench_steps(const Scenario& scenario, const std::string& device, double budget,
                                const std::string& only) {
  boost::json::array list;
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (mode_name(impl).find(only) == std::string::npos) continue;
    const StepTime one = time_steps(scenario, impl, device, budget);
    print_step(one, device);
    list.push_back(to_json(one));
  }
  return {{"steps", std::move(list)}};
}

// ---- Offloading -----------------------------------------------------------------------------------------------------

boost::json::object to_json(const LinkRate& rate) { return {{"to_host", rate.to_host}, {"to_device", rate.to_device}}; }

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
    std::printf("%-24s %7.2f GB/s to the host, %7.2f GB/s to the device\n", name, rate.to_host * 1e-9,
                rate.to_device * 1e-9);
  };
  print("pinned copies, one way", rates.alone);
  print("both ways at once", rates.both);
  print("both, beside steps", rates.beside);
  std::printf("%-24s %.3f ms/step, %.3f without copies (eager); %.1f %% of one way alone\n", "", rates.disturbed * 1e3,
              rates.step * 1e3, rates.kept() * 100);
  std::fflush(stdout);
  return rates;
}

boost::json::object bench_offload(const Scenario& scenario, const std::string& device, double budget,
                                  const std::string& only) {
  boost::json::array list;
  const LinkRates link = bench_link(scenario, device, budget);
  const double one_way = std::min(link.alone.to_host, link.alone.to_device);
  const auto microbatches = static_cast<double>(scenario.training.microbatches);
  std::printf("%-16s %9s %11s %9s %9s %11s %12s %11s %9s %9s %9s  %s\n", "offload", "fraction", "ms/step", "slower",
              "by model", "memory MB", "MB saved", "GB/s each", "of link", "prefetch", "hidden", "fits");
  time_offload(scenario, device, budget, only, [&](const OffloadRow& row) {
    if (!row.time.not_run.empty()) {
      std::printf("%-16s not run: %s\n", row.time.mode.c_str(), row.time.not_run.c_str());
      list.push_back(boost::json::object{{"mode", row.time.mode}, {"not_run", row.time.not_run}});
      return;
    }
    const double rate = microbatches * static_cast<double>(row.bytes) / row.time.median;
    std::printf("%-16s %9.2f %11.3f %7.1f %% %7.1f %% %11.1f %12.1f %11.2f %7.0f %% %9d %7.0f %%  %s%s\n",
                row.time.mode.c_str(), row.fraction.value(), row.time.median * 1e3, row.slower() * 100,
                row.model.slower() * 100, static_cast<double>(row.time.peak_bytes) * 1e-6,
                static_cast<double>(row.saved) * 1e-6, rate * 1e-9, 2 * rate / one_way * 100, row.prefetch,
                row.model.hidden() * 100,
                row.bytes == 0     ? ""
                : row.model.fits() ? "yes"
                                   : "no",
                row.as_promised() ? "" : ", but more than 2 % slower");
    std::fflush(stdout);
    boost::json::object one = to_json(row.time);
    one["fraction"] = row.fraction.value();
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
    list.push_back(std::move(one));
  });
  return {{"offload", {{"link", to_json(link)}, {"rows", std::move(list)}}}};
}

// ---- Sharding -------------------------------------------------------------------------------------------------------

boost::json::object to_json(const ExchangeTimes& times) {
  boost::json::object one{{"calls", times.calls}, {"bytes", times.bytes}, {"seconds", times.engine}};
  if (times.in_step) one["seconds_in_a_step"] = *times.in_step;
  if (times.library) one["bare_seconds"] = *times.library;
  return one;
}

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

void print_exchange(const char* name, const ExchangeTimes& times) {
  if (times.calls == 0) return;
  std::printf("%-28s %s: %lld calls, %.1f MB leave a rank, %.1f GB/s by the engine", "", name,
              static_cast<long long>(times.calls), times.bytes * 1e-6, times.bytes / times.engine * 1e-9);
  if (times.library) std::printf(", %.1f by bare calls", times.bytes / *times.library * 1e-9);
  if (times.in_step) std::printf(", %.3f ms on the stream in a step", *times.in_step * 1e3);
  std::printf("\n");
}

void print_fsdp(const FsdpTimes& one) {
  if (!one.not_run.empty()) {
    std::printf("%-28s not run: %s\n", one.mode.c_str(), one.not_run.c_str());
    return;
  }
  std::printf(
      "%-28s %9.3f ms/step, %9.3f without exchanges, %8.3f of exchanges alone: %8.3f exposed, %.3f of the larger\n",
      one.mode.c_str(), one.step * 1e3, one.compute * 1e3, one.communication * 1e3, one.exposed() * 1e3,
      one.over_the_larger());
  if (one.host) std::printf("%-28s host: %.3f ms, meeting the others included\n", "", *one.host * 1e3);
  print_exchange("gathers", one.gathers);
  print_exchange("reductions", one.reductions);
  std::fflush(stdout);
}

// One GPU a rank over NCCL where there are several, else virtual ranks. This process opens no GPU: those of ranks do.
boost::json::object bench_fsdp(const Scenario& scenario, const Options& options, const std::string& device) {
  Scenario s = scenario;
  const int gpus = device == "cuda" ? probe_cuda().gpus : 0;
  s.parallel.data = options.number("ranks") > 0 ? options.number("ranks") : std::max(2, gpus);
  s.parallel.transport = gpus >= s.parallel.data ? Transport::nccl : Transport::local;
  const std::string only = options.text("only");
  const double budget = options.seconds("budget");
  const RunFolder folder;
  const std::string file = folder.path() + "/times";
  const auto measure = [&](const RanksHere& ranks) {
    boost::json::array list;
    time_fsdp(s, device, ranks, only, budget, [&](const FsdpTimes& one) {
      print_fsdp(one);
      list.push_back(to_json(one));
    });
    if (ranks.first() == 0) write_file(file, boost::json::serialize(list));
    return ExitStatus::held;
  };
  const bool apart = s.parallel.transport == Transport::nccl;
  std::printf("%-28s %lld ranks, %s\n", "fsdp", static_cast<long long>(s.parallel.data),
              apart ? "a process and a GPU each, over NCCL" : "threads of one process on one device");
  const ExitStatus status =
      apart ? launch_here(s, options.seconds("deadline"), folder, measure) : measure(all_ranks_here(s));
  if (status != ExitStatus::held)
    throw WorldError("bench: the ranks ended with status " + std::to_string(static_cast<int>(status)));
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return {{"fsdp",
           {{"ranks", s.parallel.data},
            {"transport", apart ? "nccl" : "local"},
            {"rows", boost::json::parse(text.str())}}}};
}

// ---- Checking -------------------------------------------------------------------------------------------------------

boost::json::object bench_schedules(double budget) {
  const Program program = bench_program();
  boost::json::array list;
  for (const bool pct : {false, true}) {
    const ScheduleRate rate = time_schedules(program, pct, budget);
    std::printf("%-16s %8.0f schedules/s  (%lld in %.2f s by tags: 300 ops on 6 streams, %s, one core)\n", "schedules",
                static_cast<double>(rate.schedules) / rate.seconds, static_cast<long long>(rate.schedules),
                rate.seconds, rate.policy.c_str());
    std::fflush(stdout);
    list.push_back(
        boost::json::object{{"policy", rate.policy}, {"schedules", rate.schedules}, {"seconds", rate.seconds}});
  }
  return {{"schedules", std::move(list)}};
}

// Of several ranks, those over NCCL have GPUs of their own, and threads cannot meet inside of a graph.
bool must_be_processes(const Scenario& scenario) {
  const bool one_graph = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  return scenario.parallel.data > 1 && (scenario.parallel.transport == Transport::nccl || one_graph);
}

// Over the file that was given, or the library.
boost::json::object bench_checker(const Options& options, const std::string& device) {
  constexpr int kRuns = 5;
  const std::vector<std::string> files =
      options.words().empty() ? scenario_files(library_folder()) : std::vector<std::string>{options.words().front()};
  boost::json::array list;
  double without = 0, with = 0, most = 0;
  for (const std::string& file : files) {
    const ReadResult read = read_scenario_file(file);
    if (!read.ok() || !check_built(read.scenario).empty()) continue;
    if (must_be_processes(read.scenario) || !lacking(read.scenario, device).empty()) continue;
    const CheckerCost one = time_checker(read.scenario, device, kRuns);
    without += one.without;
    with += one.with;
    most = std::max(most, one.with / one.without);
    list.push_back(boost::json::object{{"scenario", one.scenario}, {"without", one.without}, {"with", one.with}});
  }
  if (list.empty() && options.text("section") == "checker")
    throw RequestError("--section checker: no scenario that this build can run in one process");
  if (list.empty()) return {};
  std::printf(
      "%-16s %8.2f times       (%zu scenarios, medians of %d: %.3f s with it, %.3f s without, at most %.2f, %s)\n",
      "checker", with / without, list.size(), kRuns, with, without, most, device.c_str());
  return {{"checker", {{"ratio", with / without}, {"most", most}, {"scenarios", std::move(list)}}}};
}

// ---- Random cases at the device door --------------------------------------------------------------------------------

boost::json::object bench_door(std::int64_t cases) {
  boost::json::array list;
  std::printf("%-20s %8s %8s %8s   (calls of a case, of %lld random ones)\n", "at the device door", "median", "p95",
              "most", static_cast<long long>(cases));
  for (const DoorCount& one : count_door(1, cases)) {
    std::printf("%-20s %8lld %8lld %8lld\n", one.call.c_str(), static_cast<long long>(one.median),
                static_cast<long long>(one.p95), static_cast<long long>(one.most));
    list.push_back(
        boost::json::object{{"call", one.call}, {"median", one.median}, {"p95", one.p95}, {"most", one.most}});
  }
  return {{"door", {{"cases", cases}, {"calls", std::move(list)}}}};
}

// A name that nothing has is no measurement.
void require_rows(const boost::json::object& found, const std::string& section, const std::string& only) {
  const std::string path = section == "kernels" ? "/kernels" : section == "step" ? "/steps" : "/" + section + "/rows";
  const boost::json::value all = found;
  boost::system::error_code none;
  const boost::json::value* rows = all.find_pointer(path, none);
  if (rows != nullptr && rows->as_array().empty()) {
    throw RequestError("--only " + only + ": nothing in section " + section + " has such a name");
  }
}

}  // namespace

ExitStatus bench_command(const Words& words) {
  Options options("bench", "[FILE|H1|S1]",
                  "scenarios: engine, oracle and comparison on one core of the simulated device, a second.\n"
                  "kernels: every op of a step by itself, beside the rate of a copy.\n"
                  "step: the median time of a step eager, with partial graphs and with one graph of the whole step.\n"
                  "offload: the link's rate alone and beside steps; step time and device memory by fraction.\n"
                  "fsdp: step time of several ranks beside that of its work and of its exchanges, by strategy.\n"
                  "schedules: those of a small program that run by tags.\n"
                  "checker: runs of the file, or of the library, with and without checking.\n"
                  "door: what 200 random cases ask of a device.\n"
                  "offload, fsdp and door are not part of all.\n"
                  "H1 and S1 are the standard models; the oracle is left out for them.",
                  1);
  options.device().deadline().seconds("budget", "seconds for each measurement", 5);
  options.choice("section", "all, scenarios, kernels, step, offload, fsdp, schedules, checker or door",
                 {"all", "scenarios", "kernels", "step", "offload", "fsdp", "schedules", "checker", "door"}, "all");
  options.text("only",
               "kernels: ops whose name or shape holds this text; step, offload: modes; fsdp: strategies, modes");
  options.number("ranks", "fsdp: how many; 0: as many as there are GPUs, at least 2", 0, 0);
  options.text("json", "write the numbers to this file");
  if (!options.parse(words)) return ExitStatus::held;
  const std::string section = options.text("section");
  const auto wanted = [&](const char* name) { return section == "all" || section == name; };
  const Request request = request_of(options);
  if (request.standard && (section == "scenarios" || section == "checker")) {
    throw RequestError("--section " + section + ": " + request.scenario.name + " is too large for the oracle");
  }
  const std::string device = choose_device(options.text("device"));
  const double budget = options.seconds("budget");

  boost::json::object sharded;
  if (section == "fsdp") sharded = bench_fsdp(request.scenario, options, device);  // Before this process opens a GPU.
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
  if (section == "door") add(bench_door(200));
  if (options.has("only")) require_rows(found, section, options.text("only"));
  if (options.has("json")) write_file(options.text("json"), boost::json::serialize(found) + "\n");
  return ExitStatus::held;
}

}  // namespace lockstep
