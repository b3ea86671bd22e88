// The codes and exponents of fp8 in a step: weights are quantised, amaxes exchanged between ranks,
// and the exponents of recipe delayed rolled.
#include "engine/train/step_listener.h"
#include "engine/train/step_loop.h"
#include "kernels/core/fault.h"
#include "kernels/ops/fp8.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"

namespace lockstep {

// Codes last only of weights that stay gathered, for which compute waits unit by unit.
void StepLoop::quantise_weights(Passes passes) {
  if (!multiplies_fp8(scenario_) || !scenario_.fp8.weight_cache) return;
  const bool comes_and_goes = scenario_.fsdp.strategy == Sharding::optim_grads_params;
  if (gathers_codes() && (comes_and_goes || passes == Passes::evaluation)) return;
  const StepLocationScope scope(device_, -1, "weights");
  const ExponentRule rule = exponent_rule(passes);
  if (rule.measures) parameters_.clear_amaxes(compute_);
  if (!sharder_) return parameters_.quantise(compute_, 0, modules_.layers, rule);
  for (int unit = 0; unit < static_cast<int>(layout_->units.size()); ++unit) {
    const Unit& one = at(layout_->units, unit);
    if (one.kind != Unit::Kind::blocks) continue;
    const bool waits = faulty("fp8-weights-quantised-before-their-gather", true, false);
    if (waits) sharder_->await_weights(unit);
    parameters_.quantise(compute_, one.first_layer, one.first_layer + one.layers, rule);
  }
}

// The largest amax of each weight: of all ranks, or of this rank's rows alone.
void StepLoop::exchange_shard_amaxes(bool between_ranks) {
  const auto& [own, of_ranks, whole] = parameters_.shard_amaxes();
  const bool gathers = faulty("fp8-gathered-codes-by-amaxes-of-one-rank", between_ranks, false);
  if (gathers) {
    sharder_->communicator().all_gather(compute_, {"amaxes"}, of_ranks.data, own.data,
                                        range_of(own).bytes);
    count_exchange();
  }
  compute_.submit(Fp8AmaxOfRanks{.of_ranks = gathers ? of_ranks : own, .amax = whole});
}

// Steps behind the first of recipe delayed have their exponents already.
void StepLoop::quantise_shards(std::int64_t step) {
  if (!gathers_codes()) return;
  const StepLocationScope scope(device_, -1, "weights");
  const bool holds = is_delayed() && step > 0;
  const ExponentRule rule{.measures = true, .holds = holds};
  parameters_.measure_shards(compute_);
  const bool early = faulty("fp8-shards-quantised-before-the-exchange", false, step > 0);
  if (early) parameters_.quantise_shards(compute_, rule);
  exchange_shard_amaxes(!holds);
  if (!early) parameters_.quantise_shards(compute_, rule);
}

// ---- Recipe delayed of fp8 ----------------------------------------------------------------------

bool StepLoop::is_delayed() const {
  return multiplies_fp8(scenario_) && scenario_.fp8.recipe == Fp8Recipe::delayed;
}

// The first step takes its own exponents, which no graph does (L46). An evaluation comes behind it.
ExponentRule StepLoop::exponent_rule(Passes passes) const {
  if (!is_delayed()) return {};
  const bool records = faulty("fp8-evaluation-records", false, passes == Passes::evaluation);
  return {.measures = passes == Passes::training || records,
          .holds = passes == Passes::evaluation || device_.place.step > 0};
}

// Every rank sends its words, those without documents too.
void StepLoop::exchange_amaxes() const {
  const Fp8Pending& pending = parameters_.pending();
  if (!pending.of_ranks) return;
  const std::size_t bytes = range_of(pending.own).bytes;
  sharder_->communicator().all_gather(compute_, {"amaxes"}, pending.of_ranks.data, pending.own.data,
                                      bytes);
}

void StepLoop::exchange_and_count() {
  const bool is_empty = packs_.tokens_in(packs_.count() - 1) == 0;
  const bool left_out = faulty("fp8-amaxes-not-exchanged-without-documents", false, is_empty);
  if (!parameters_.pending().of_ranks || left_out) return;
  exchange_amaxes();
  count_exchange();
}

void StepLoop::count_exchange() {
  device_.count(compute_, device_.counters.of(device_.place.rank).amax_exchanges);
}

bool StepLoop::rolled_in_graph() const {
  return faulty("fp8-history-rolled-twice", launched_roll_, false);
}

bool StepLoop::exchanges(bool behind_passes) const {
  return faulty("fp8-amaxes-exchanged-before-the-last-pass", behind_passes, !behind_passes);
}

void StepLoop::exchange_behind_passes() {
  if (exchanges(true) && !rolled_in_graph()) exchange_and_count();
}

void StepLoop::roll_behind_passes() {
  if (!rolled_in_graph()) roll();
  if (options_.listener != nullptr) report_roll();
}

void StepLoop::roll() {
  if (!is_delayed()) return;
  const StepLocationScope scope(device_, -1, "scaling");
  const auto submit = [&]<class F>(const Fp8Scaling& scaling) {
    const Scenario::Fp8& fp8 = scenario_.fp8;
    const Tensor<std::uint32_t> none;
    compute_.submit(Fp8Roll<F>{.state = loader_.state(true),
                               .pending = scaling.pending,
                               .of_ranks = faulty("fp8-amaxes-of-one-rank", scaling.of_ranks, none),
                               .history = scaling.history,
                               .k = scaling.exponent,
                               .margin = static_cast<std::int32_t>(fp8.margin),
                               .most_recent = fp8.algorithm == Fp8Algorithm::most_recent});
  };
  submit.operator()<e4m3>(parameters_.scaling_of_inputs());
  submit.operator()<e5m2>(parameters_.scaling_of_gradients());
}

// For a planted fault: a roll belongs to the step, not to a pass.
void StepLoop::roll_behind(const MicrobatchPass& pass) {
  const bool rolls = faulty("fp8-rolls-in-every-pass", false, pass.microbatch + 1 < packs_.count());
  if (!rolls) return;
  exchange_and_count();
  roll();
}

void StepLoop::report_roll() {
  if (!is_delayed()) return;
  std::vector<NamedTensor> histories;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (!spec.fp8_layer || !parameters_[spec.index].fp8) continue;  // Another stage's.
    const std::string name =
        "layers." + std::to_string(spec.layer) + "." + word(*spec.fp8_layer) + ".";
    const Fp8Weight& weight = parameters_[spec.index].fp8;
    const auto add = [&](const char* operand, const Fp8Delayed& delayed) {
      histories.push_back({name + operand + "_history", spec.layer, Fp8Roll<e4m3>::kName,
                           delayed.history, NamedTensor::Rows::words});
    };
    add("x", weight.delayed_x);
    add("w", weight.delayed);
    add("dy", weight.delayed_dy);
  }
  options_.listener->rolled(histories);
}

void StepLoop::quantise_ahead(std::int64_t step, Passes passes) {
  const bool is_due = scenario_.cuda_graph.impl != GraphImpl::full_iteration;
  const bool begins = is_due && step == first_step_;
  const bool quantises = faulty("fp8-weights-quantised-in-the-first-step", is_due, begins);
  const bool transposes = faulty("fp8-transposed-codes-of-the-first-step", quantises,
                                 gathers_codes() ? begins : quantises);
  if (transposes) quantise_weights(passes);
}

void StepLoop::quantise_with_passes(Passes passes) {
  const bool is_due = scenario_.cuda_graph.impl == GraphImpl::full_iteration;
  const bool runs = device_.recording() < 0;
  const bool quantises = faulty("iteration-graph-without-fp8-weights", is_due, is_due && runs);
  if (quantises) quantise_weights(passes);
}

}  // namespace lockstep
