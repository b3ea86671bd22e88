// A step of several ranks beside that of its work and of its exchanges.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/base/columns.h"
#include "harness/base/write_file.h"
#include "harness/bench/fsdp.h"
#include "harness/bench/sections.h"
#include "harness/run/device_choice.h"
#include "harness/run/launch.h"

namespace lockstep {
namespace {

boost::json::object to_json(const ExchangeTimes& times) {
  boost::json::object one{
      {"calls", times.calls}, {"bytes", times.bytes}, {"seconds", times.engine}};
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

constexpr std::size_t kNameWidth = 29;  // With the blank behind it.

void print_exchange(const char* name, const ExchangeTimes& times) {
  if (times.calls == 0) return;
  std::string line = formatted(
      "%-28s %s: %lld calls, %.1f MB leave a rank, %.1f GB/s by the engine", "", name,
      static_cast<long long>(times.calls), times.bytes * 1e-6, times.bytes / times.engine * 1e-9);
  if (times.library) line += formatted(", %.1f by bare calls", times.bytes / *times.library * 1e-9);
  if (times.in_step) line += formatted(", %.3f ms on the stream in a step", *times.in_step * 1e3);
  print_fitted(line + "\n");
}

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

// One GPU a rank over NCCL where there are several, else virtual ranks. This process opens no GPU:
// those of ranks do.
void bench_fsdp(const Scenario& scenario, const Options& options, const std::string& device,
                BenchRows& rows) {
  Scenario s = scenario;
  const int gpus = device == "cuda" ? probe_cuda().gpus : 0;
  s.parallel.data = options.number("ranks") > 0 ? options.number("ranks") : std::max(2, gpus);
  s.parallel.transport = gpus >= s.parallel.data ? Transport::nccl : Transport::local;
  const std::string only = options.text("only");
  const double budget = options.seconds("budget");
  const RunFolder folder;
  const std::string file = folder.path() + "/times";
  // Ranks that are processes give theirs through the file, which is whole after each row.
  const auto measure = [&](const LocalRanks& ranks) {
    boost::json::array list;
    time_fsdp(s, device, ranks, only, budget, [&](const FsdpTimes& one) {
      print_fsdp(one);
      list.push_back(to_json(one));
      if (ranks.apart()) return write_file(file, boost::json::serialize(list));
      rows.add("/fsdp/rows", to_json(one));
    });
    return ExitStatus::held;
  };
  const bool apart = s.parallel.transport == Transport::nccl;
  print_fitted(formatted("%-28s %lld ranks, %s\n", "fsdp", static_cast<long long>(s.parallel.data),
                         apart ? "a process and a GPU each, over NCCL"
                               : "threads of one process on one device"),
               kNameWidth);
  rows.set("/fsdp/ranks", s.parallel.data);
  rows.set("/fsdp/transport", apart ? "nccl" : "local");
  rows.begin("/fsdp/rows");
  const auto add_rows_of_processes = [&] {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    if (!text.str().empty()) rows.set("/fsdp/rows", boost::json::parse(text.str()));
  };
  ExitStatus status;
  try {
    status = apart ? launch_here(s, options.seconds("deadline"), folder, measure)
                   : measure(all_local_ranks(s));
  } catch (const Interrupted&) {
    if (apart) add_rows_of_processes();
    throw;
  }
  if (status != ExitStatus::held)
    throw WorldError("bench: the ranks ended with status " +
                     std::to_string(static_cast<int>(status)));
  if (apart) add_rows_of_processes();
}

}  // namespace lockstep
