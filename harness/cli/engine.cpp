// `lockstep engine`: lockstep's own engine as a child of who judges engines.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/base/options.h"
#include "harness/cli/commands.h"
#include "harness/run/device_choice.h"
#include "harness/run/memory_check.h"
#include "harness/run/planted.h"
#include "harness/wire/engine_server.h"
#include "harness/wire/tensor_file.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

struct Descriptors {
  int in = -1, out = -1;
};

Descriptors descriptors() {
  const char* const given = std::getenv("LOCKSTEP_ENGINE_FDS");
  Descriptors found;
  char rest = 0;
  if (given == nullptr || std::sscanf(given, "%d,%d%c", &found.in, &found.out, &rest) != 2) {
    throw RequestError(
        "LOCKSTEP_ENGINE_FDS must be two descriptors, such as 3,4: this command is started by who "
        "judges an engine (docs/engine-protocol.md)");
  }
  return found;
}

}  // namespace

Options engine_options() {
  Options options("engine", "",
                  "Answers the engine protocol with lockstep's own engine: for --engine 'lockstep "
                  "engine'.",
                  0);
  options.flag("whole-steps",
               "honour graphs of whole steps instead of parts, for two microbatches");
  options.flag("steps-only",
               "observe what belongs to a step alone, so that graphs of whole steps may have any "
               "number of microbatches");
  options.flag("own-scalars",
               "take loss scales and learning rates from the scenario, not from the feed");
  options.flag(
      "thread-ranks",
      "run all ranks as threads of each process, so that a resume may change their number");
  options.device().planted();
  return options;
}

ExitStatus engine_command(const Words& words) {
  Options options = engine_options();
  if (!options.parse(words)) return ExitStatus::held;
  RunOptions run{.device = choose_device(options.text("device"))};
  take_planted(options, run);
  plant_fault(run.planted.engine);
  const Descriptors at = descriptors();
  const MemoryUse use{.engine_on_host = run.device == "sim", .reference = false};
  wire::EngineServer server({.device = run.device,
                             .fault = run.planted.engine,
                             .whole_steps = options.has("whole-steps"),
                             .steps_only = options.has("steps-only"),
                             .own_scalars = options.has("own-scalars"),
                             .thread_ranks = options.has("thread-ranks"),
                             .lack_of_memory = [use](const Scenario& scenario) {
                               return lack_of_memory(scenario, use);
                             }});
  try {
    wire::serve(server, at.in, at.out);
  } catch (const wire::WireError& error) {
    throw WorldError(error.what());
  }
  return ExitStatus::held;
}

}  // namespace lockstep
