#include "harness/bench/recorded_step.h"

#include "harness/bench/work.h"
#include "harness/case/schedules.h"
#include "harness/run/device_choice.h"
#include "kernels/core/at.h"

namespace lockstep {

void OpRecorder::on_call(const IssuedCall& issued) {
  const auto* submitted = issued.as<SubmitCall>();
  if (!recording || !submitted) return;
  const Submission& op = submitted->op;
  const auto [entry, is_new] =
      ops.try_emplace(signature(op), RecordedOp{op, issued.place.microbatch, 0});
  entry->second.op = op;
  entry->second.microbatch = issued.place.microbatch;
  ++entry->second.times;
}

RecordedStep::RecordedStep(const Scenario& scenario, const std::string& device_kind)
    : data_(open_data(scenario)),
      device_(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed)),
              &recorder_),
      trainer_(device_, scenario, *data_, {.dry_run_ledger = false}) {
  recorder_.recording = true;
  trainer_.step();
  recorder_.recording = false;
  step_ = data_->training(0);
}

const Microbatch& RecordedStep::microbatch(int number) const {
  return at(step_.microbatches, number);
}

}  // namespace lockstep
