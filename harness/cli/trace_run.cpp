#include "harness/cli/trace_run.h"

#include "harness/case/schedules.h"
#include "harness/checker/checker.h"
#include "harness/inject/fault_injector.h"
#include "harness/judge/thread_ranks.h"
#include "kernels/core/fault.h"

namespace lockstep {

namespace {

// Delayed as the run that was judged. Returns why it ended before its end, "" if it did not.
std::string run(const Scenario& scenario, const SimOptions& sim, const std::string& fault,
                Observer& observer) {
  const auto injector = injector_for(scenario.model.pattern, fault);
  try {
    const std::unique_ptr<DataSource> data = open_data(scenario);
    Device device(open_sim(sim), &observer, pressure_of(scenario), injector.get());
    const auto plain = [](int) { return TrainerOptions(); };
    train_to_the_end(device, scenario, *data, plain,
                     [](ThreadRank& rank) { rank.trainer.weight_digest(); });
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TracePoint point_of(const Touch& touch, const std::string& stream) {
  const Work& work = touch.work;
  // A lane of a graph is "loader (in a graph launched on compute)".
  return {stream.substr(0, stream.find(" (in a graph")),
          work.name,
          work.place,
          work.graph,
          work.launch,
          work.bytes};
}

// The checker judges the calls, so a run of its own finds the same hazards. What has no second item
// is not drawn.
void add_hazards(const Scenario& scenario, const SimOptions& sim, const std::string& fault,
                 Trace& trace) {
  Checker checker({.stop = false, .dropped = {}});
  run(scenario, sim, fault, checker);
  for (const Hazard& hazard : distinct(checker.hazards())) {
    if (!hazard.earlier) continue;
    add_missing_edge(trace, point_of(*hazard.earlier, hazard.earlier_stream),
                     point_of(hazard.later, hazard.later_stream), text(hazard));
  }
}

}  // namespace

Trace trace_case(const Scenario& scenario, const RunOptions& options) {
  std::vector<SimStep> ran;
  TraceRecorder recorder;
  SimOptions sim = sim_options(scenario, scenario.checker.schedule.seed);
  plant_fault(options.planted.engine);
  sim.trace = &ran;
  const std::string ended = run(scenario, sim, options.planted.engine, recorder);
  Trace trace = recorder.finish(ran);
  trace.ended = ended;
  sim.trace = nullptr;
  // The order in which a missing edge does the least harm.
  sim.policy = SimOptions::Policy::program;
  if (scenario.checker.hazards) {
    plant_fault(options.planted.engine);  // Some faults strike once.
    add_hazards(scenario, sim, options.planted.engine, trace);
  }
  plant_fault("");
  return trace;
}

}  // namespace lockstep
