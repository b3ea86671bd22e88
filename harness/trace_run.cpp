#include "harness/trace_run.h"

#include "engine/trainer.h"
#include "harness/schedules.h"
#include "kernels/fault.h"

namespace lockstep {

Trace trace_case(const Scenario& scenario, const RunOptions& options) {
  std::vector<SimStep> ran;  // Outlives the device, as the recorder does.
  TraceRecorder recorder;
  std::string ended;
  plant_fault(options.fault);
  try {
    const std::unique_ptr<DataSource> data = open_data(scenario);
    SimOptions sim = sim_options(scenario, scenario.checker.schedule.seed);
    sim.trace = &ran;
    Device device(open_sim(sim), &recorder);
    Trainer trainer(device, scenario, *data, {});
    for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
      trainer.step();
      if (trainer.evaluation_is_due()) trainer.evaluate();
    }
    trainer.weight_digest();
  } catch (const std::exception& error) {
    ended = error.what();
  }
  plant_fault("");
  Trace trace = recorder.finish(ran);
  trace.ended = ended;
  return trace;
}

}  // namespace lockstep
