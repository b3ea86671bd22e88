#include "harness/ranks/ranks_of_section.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/base/columns.h"
#include "harness/base/errors.h"
#include "harness/base/write_file.h"
#include "harness/run/device_choice.h"
#include "harness/run/launch.h"
#include "scenarios/pass_order.h"

namespace lockstep {

std::int64_t ranks_asked_for(const Options& options, const std::string& device) {
  const int gpus = device == "cuda" ? probe_cuda().gpus : 0;
  return options.number("ranks") > 0 ? options.number("ranks") : std::max(2, gpus);
}

void bench_ranks(
    const RanksSection& section, const Scenario& scenario, const Options& options,
    const std::string& device, BenchRows& rows,
    const std::function<void(const Scenario&, const LocalRanks&, const AddRow&)>& measure) {
  Scenario s = scenario;
  const int gpus = device == "cuda" ? probe_cuda().gpus : 0;
  const std::int64_t count = ranks_of_run(s);
  const bool apart = gpus >= count;
  s.parallel.transport = apart ? Transport::nccl : Transport::local;
  const RunFolder folder;
  const std::string file = folder.path() + "/times";
  const std::string at = std::string("/") + section.name, list_at = at + "/rows";
  // Ranks that are processes give theirs through the file, which is whole after each row.
  const auto body = [&](const LocalRanks& ranks) {
    boost::json::array list;
    measure(s, ranks, [&](const boost::json::object& row) {
      list.push_back(row);
      if (ranks.apart()) return write_file(file, boost::json::serialize(list));
      rows.add(list_at, row);
    });
    return ExitStatus::held;
  };
  print_fitted(formatted("%-*s%lld ranks, %s\n", static_cast<int>(section.width), section.name,
                         static_cast<long long>(count),
                         apart ? "a process and a GPU each, over NCCL"
                               : "threads of one process on one device"),
               section.width);
  rows.set(at + "/ranks", count);
  rows.set(at + "/transport", apart ? "nccl" : "local");
  rows.begin(list_at);
  const auto add_rows_of_processes = [&] {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    if (!text.str().empty()) rows.set(list_at, boost::json::parse(text.str()));
  };
  ExitStatus status;
  try {
    status = apart ? launch_here(s, options.seconds("deadline"), folder, body)
                   : body(all_local_ranks(s));
  } catch (const Interrupted&) {
    if (apart) add_rows_of_processes();
    throw;
  }
  if (status != ExitStatus::held)
    throw WorldError("bench: the ranks ended with status " +
                     std::to_string(static_cast<int>(status)));
  if (apart) add_rows_of_processes();
}

boost::json::object to_json(const ExchangeTimes& times) {
  boost::json::object one{
      {"calls", times.calls}, {"bytes", times.bytes}, {"seconds", times.engine}};
  if (times.in_step) one["seconds_in_a_step"] = *times.in_step;
  if (times.library) one["bare_seconds"] = *times.library;
  return one;
}

void print_exchange(const char* name, const ExchangeTimes& times) {
  if (times.calls == 0) return;
  std::string line = formatted(
      "%-28s %s: %lld calls, %.1f MB leave a rank, %.1f GB/s by the engine", "", name,
      static_cast<long long>(times.calls), times.bytes * 1e-6, times.bytes / times.engine * 1e-9);
  if (times.library) line += formatted(", %.1f by bare calls", times.bytes / *times.library * 1e-9);
  if (times.in_step) line += formatted(", %.3f ms on the stream in a step", *times.in_step * 1e3);
  print_fitted(line + "\n");
}

}  // namespace lockstep
