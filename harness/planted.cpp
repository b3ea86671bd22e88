#include "harness/planted.h"

#include <algorithm>

#include "engine/faults.h"
#include "harness/exit_status.h"
#include "harness/worker.h"
#include "kernels/fault.h"
#include "oracle/oracle.h"
#include "scenarios/nearest.h"

namespace lockstep {
namespace {

std::string checked(const std::string& name, const std::vector<std::string>& known, const char* option) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return name;
  throw RequestError(std::string("--") + option + ": there is no " + name + "; nearest: " + nearest_name(name, known));
}

}  // namespace

std::vector<std::string> known_faults() {
  std::vector<std::string> names;
  for (const auto& name : kernel_faults()) names.emplace_back(name);
  for (const auto& name : engine_faults()) names.emplace_back(name);
  names.emplace_back(kCrashFault);
  names.emplace_back(kHangFault);
  return names;
}

void take_planted(const Options& options, RunOptions& run) {
  run.fault = checked(options.text("plant"), known_faults(), "plant");
  run.mutation = checked(options.text("mutate-oracle"), oracle::Oracle::mutations(), "mutate-oracle");
}

}  // namespace lockstep
