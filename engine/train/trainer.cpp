#include "engine/train/trainer.h"

#include <exception>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/train/step_state.h"
#include "engine/train/trainer_impl.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/optimizer.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"

namespace lockstep {

Trainer::Impl::Impl(Device& device_, const Scenario& scenario_, const DataSource& data_,
                    const TrainerOptions& options_)
    : device(device_),
      scenario(scenario_),
      data(data_),
      options(join_experts(join(options_))),
      loop(device_, scenario, options, several_stages() ? all_ranks : nullptr),
      pool(device_),
      norm_sequence(loop.compute(), pool, loop.parameters(), scenario, of_all()),
      norm(pool.make<float>(1, 2)),
      digest(pool.make<std::uint64_t>(1, 2 * (1 + ranks_of_run(scenario)))),
      results(device_, pool, loop, scenario, of_all()) {}

// Takes this rank's place in the run. A single rank that shards communicates with itself; a single
// rank that does not shard needs no communicator.
TrainerOptions Trainer::Impl::join(TrainerOptions from) {
  if (several_stages()) return join_stage(from);
  const bool several = scenario.parallel.data > 1;
  if (!several && !sharded()) from.communicator = nullptr;
  if (!several && sharded() && from.communicator == nullptr) {
    own_communicator = make_self_communicator(device);
    from.communicator = own_communicator.get();
  }
  require(!several || from.communicator != nullptr, "a run of several ranks has a communicator");
  require(from.communicator == nullptr || from.communicator->size() == scenario.parallel.data,
          "the communicator joins the ranks of the scenario");
  device.place.rank = from.communicator == nullptr ? 0 : from.communicator->rank();
  return from;
}

// A stage is a run of its own for all but the passes, the norm, the results and the digest.
TrainerOptions Trainer::Impl::join_stage(TrainerOptions from) {
  require(from.communicator != nullptr && from.communicator->size() == ranks_of_run(scenario),
          "the communicator joins the ranks of all stages");
  all_ranks = from.communicator;
  device.place.rank = all_ranks->rank();
  if (ranks() > 1) {
    std::vector<int> stage(ranks());
    std::iota(stage.begin(), stage.end(), device.place.rank - replica());
    own_communicator = all_ranks->group(stage);
  } else if (sharded()) {
    own_communicator = make_self_communicator(device);
  }
  from.communicator = own_communicator.get();
  return from;
}

TrainerOptions Trainer::Impl::join_experts(TrainerOptions from) {
  if (expert_ranks(scenario) == 1) return from;
  Communicator& all = several_stages() ? *all_ranks : *from.communicator;
  const std::vector<int> same = replicas_of_experts(scenario, device.place.rank);
  expert_group = all.group(expert_peers(scenario, device.place.rank));
  replica_group = same.size() == 1 ? make_self_communicator(device) : all.group(same);
  expert_group->connect_exchanges();
  replica_group->connect_exchanges();
  from.experts = expert_group.get();
  from.replicas = replica_group.get();
  return from;
}

bool Trainer::Impl::is_first_with(const ParameterView& parameter) const {
  const ParameterSpec& spec = at(loop.parameters().specs(), parameter.index);
  return replica() < spec.place.ranks;
}

Trainer::Trainer(Device& device, const Scenario& scenario, const DataSource& data,
                 const TrainerOptions& options)
    : impl_(std::make_unique<Impl>(device, scenario, data, options)) {}
Trainer::~Trainer() {
  if (std::uncaught_exceptions() > impl_->exceptions) return;
  try {
    const bool waits = faulty("trainer-leaves-in-the-middle-of-a-step", true, false);
    if (waits) impl_->loop.synchronize();
  } catch (...) {  // Another call has reported the failure.
  }
}

std::int64_t Trainer::steps_done() const { return impl_->steps_done; }
std::int64_t Trainer::microbatches_done() const { return impl_->microbatches_done; }

// ---- A step -------------------------------------------------------------------------------------

void Trainer::Impl::load_state(const StepData& data, bool training) {
  const std::int64_t stages = scenario.parallel.pipeline, targets = data.targets;
  const std::int64_t counted = faulty("normaliser-of-one-stage", targets, targets / stages);
  StepState state =
      step_state(scenario, {.steps_done = steps_done,
                            .steps_since_load = steps_done - steps_loaded,
                            .targets = faulty("loss-normaliser-baked", counted, first_targets),
                            .microbatches = std::ssize(data.microbatches),
                            .ranks = ranks()});
  if (options.scalars != nullptr && training) {
    state.inverse_targets = at(options.scalars->loss_scale, steps_done);
    state.learning_rate = at(options.scalars->learning_rate, steps_done);
  }
  learning_rate = state.learning_rate;
  loop.loader().load_state(state, training);
}

// Clears the gradients of the next step while the device works. At the start of that step the
// device would wait for the host.
void Trainer::Impl::clear_gradients() {
  device.place.part = "gradients";
  loop.parameters().zero_gradients(loop.compute());
  cleared = true;
}

// Draws the documents of the next step while the device works. If this fails, the step that needs
// them, if it comes, draws them again and reports the failure.
void Trainer::Impl::draw_ahead() {
  ahead_of = -1;
  try {
    ahead = documents_of(steps_done + 1);
    ahead_of = steps_done + 1;
  } catch (const std::exception&) {
    ahead = {};
  }
}

StepData Trainer::Impl::take_data() {
  if (ahead_of != steps_done) return documents_of(steps_done);
  ahead_of = -1;
  return std::move(ahead);
}

StepData Trainer::Impl::documents_of(std::int64_t step) const {
  const std::int64_t before = step - (device.place.rank >= ranks() && step > 0 ? 1 : 0);
  const std::int64_t read = faulty("a-stage-reads-the-step-before", step, before);
  return data.training(faulty("resume-reads-documents-from-the-start", read, read - steps_loaded));
}

void Trainer::Impl::start() {
  if (started) return;
  StepData data = take_data();
  device.enter_step(steps_done);
  if (first_targets == 0) first_targets = data.targets;
  load_state(data, true);
  const bool continued = cleared || microbatches_done > 0;
  loop.start(steps_done, data, faulty("resume-clears-the-gradients-so-far", continued, cleared));
  started = std::move(data);
}

std::int64_t Trainer::Impl::microbatches() const {
  return std::ssize(started->microbatches) / ranks();
}

// If this fails, the next call starts the step again.
void Trainer::Impl::run_to(std::int64_t microbatches) {
  std::optional<StepData> data = std::exchange(started, {});
  cleared = false;
  loop.train(steps_done, static_cast<int>(microbatches_done), static_cast<int>(microbatches));
  started = std::move(data);
  microbatches_done = microbatches;
}

void Trainer::accumulate(std::int64_t microbatches) {
  Impl& my = *impl_;
  my.start();
  require(my.microbatches_done < microbatches && microbatches < my.microbatches(),
          "a step is interrupted after some of its microbatches, and before all");
  my.run_to(microbatches);
}

StepResult Trainer::step() {
  Impl& my = *impl_;
  my.start();
  my.run_to(my.microbatches());
  if (my.options.listener != nullptr) {
    if (my.loop.sharder() != nullptr) my.loop.sharder()->await_gradients();
    my.options.listener->gradients_done();
  }
  my.optimize();
  my.clear_gradients();
  my.draw_ahead();
  StepResult result;
  my.results.fetch(my.norm, my.microbatches_done, result);
  result.learning_rate = my.learning_rate;
  result.tokens = my.loop.tokens();
  ++my.steps_done;
  my.microbatches_done = 0;
  my.started.reset();
  my.device.leave_step();
  if (my.options.listener != nullptr) my.options.listener->step_done();
  return result;
}

// While the gradients of one unit are reduced, those of the units before it are summed. Norm,
// losses and amaxes are exchanged in one group, because each call by itself would make every rank
// wait.
void Trainer::Impl::sum_gradients(const Stream& stream) {
  const int count = static_cast<int>(loop.parameters().specs().size());
  Sharder* const sharder = loop.sharder();
  norm_sequence.clear_unused(stream);
  if (sharded()) {
    const ShardLayout& layout = sharder->layout();
    for (int unit = static_cast<int>(layout.units.size()) - 1; unit >= 0; --unit) {
      const auto [first, end] = layout.parameters(at(layout.units, unit));
      if (!norm_sequence.has_own_rows(first, end)) continue;
      const StepLocationScope scope = at_unit(at(layout.units, unit));
      sharder->await_gradients(faulty("sums-wait-for-every-reduction", unit, 0));
      norm_sequence.sum_own_rows(stream, first, end);
    }
  }
  if (sharder != nullptr) sharder->await_gradients();
  if (!sharded()) norm_sequence.sum_own_rows(stream, 0, count);
  const auto exchange = [&] {
    norm_sequence.exchange(stream);
    results.exchange(microbatches_done);
    loop.exchange_behind_passes();
  };
  of_all() == nullptr ? exchange() : of_all()->grouped(exchange);
}

void Trainer::Impl::optimize() {
  const Stream& stream = loop.compute();
  device.place.part = "gradient_norm";
  sum_gradients(stream);
  stream.submit(GradientNorm{.sums = norm_sequence.sums(stream),
                             .norm = norm,
                             .max_norm = static_cast<float>(scenario.training.optimizer.clip)});
  loop.roll_behind_passes();
  device.place.part = "expert_bias";
  update_biases(stream, loop.expert_states(), communicator());
  device.place.part = "optimizer";
  if (sharded()) {
    update_shards(stream);
  } else {
    update_weights(stream, 0, static_cast<int>(loop.parameters().specs().size()));
  }
  loop.receive_tied_weight();
  loop.loader().state_consumed(stream);
}

bool Trainer::Impl::gathers_late() const {
  return faulty("weights-gathered-behind-every-update", false, !loop.gathers_codes());
}

// Resident units are updated first, so that their gathers overlap with the updates of the other
// units. Codes wait for all updates, since ranks exchange amaxes in one call, and so do all gathers
// then. A tied weight goes to the last stage as it was gathered.
void Trainer::Impl::update_shards(const Stream& stream) {
  Sharder& sharder = *loop.sharder();
  const std::vector<Unit>& units = sharder.layout().units;
  const auto send = [&](int unit) {
    if (at(units, unit).kind == Unit::Kind::embedding) loop.send_tied_weight();
  };
  const bool late = gathers_late();
  for (const bool resident : {true, false}) {
    for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
      if (sharder.is_resident(unit) != resident) continue;
      const auto [first, end] = sharder.layout().parameters(at(units, unit));
      update_weights(stream, first, end);
      const bool is_due = !loop.gathers_codes();
      const bool gathers = faulty("weights-not-gathered-after-the-optimizer", is_due, false);
      if (gathers && !late) sharder.refresh(unit);
      const bool sends = faulty("tied-weight-sent-before-codes-are-gathered", is_due, true);
      if (sends) send(unit);
    }
  }
  for (int unit = 0; late && unit < static_cast<int>(units.size()); ++unit) sharder.refresh(unit);
  if (!loop.gathers_codes()) return;
  loop.quantise_shards(steps_done + 1);
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    sharder.refresh(unit);
    send(unit);
  }
}

// Updates the parameters [first, end).
void Trainer::Impl::update_weights(const Stream& stream, int first, int end) {
  const int last =
      faulty("optimizer-skips-a-step-without-targets", end, started->targets == 0 ? first : end);
  for (const ParameterView& p : loop.parameters().views()) {
    if (p.index < first || p.index >= last || p.weight.size() == 0) continue;
    AdamW update = update_of(p);
    update.copy = faulty("bf16-weights-not-refreshed", p.copy, Tensor<bf16>{});
    stream.submit(update);
    if (p.index == 0 && !sharded()) loop.send_tied_weight();
  }
}

AdamW Trainer::Impl::update_of(const ParameterView& p) {
  const Scenario::Training::Optimizer& config = scenario.training.optimizer;
  const auto decay = static_cast<float>(config.weight_decay), eps = static_cast<float>(config.eps);
  return {.g = p.gradient,
          .norm = norm,
          .state = loop.loader().state(true),
          .w = p.weight,
          .m = p.m,
          .v = p.v,
          .beta1 = static_cast<float>(config.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
          .eps = faulty("adam-has-its-own-eps", eps, 1e-8f),
          .weight_decay = p.is_vector ? faulty("vectors-decay", 0.0f, decay) : decay};
}

// ---- Evaluation ---------------------------------------------------------------------------------

bool Trainer::evaluation_is_due() const {
  const std::int64_t every = impl_->scenario.training.eval_every;
  return every > 0 && impl_->steps_done > 0 && impl_->steps_done % every == 0;
}

StepResult Trainer::evaluate() {
  Impl& my = *impl_;
  require(my.steps_done > 0 && my.microbatches_done == 0, "an evaluation comes after a step");
  const std::int64_t step = my.steps_done - 1;
  const StepData data = my.data.evaluation(step);
  my.device.enter_step(step);
  using Call = std::function<void()>;
  const Call keep = [&] { my.pool.make<float>(1, 64); };
  const Call kept = faulty<Call>(
      "evaluation-keeps-memory", [] {}, keep);
  kept();
  my.load_state(data, false);
  my.loop.evaluate(step, data);
  my.steps_done += faulty("evaluation-counts-as-a-step", 0, 1);
  StepResult result;
  const std::size_t microbatches = data.microbatches.size() / static_cast<std::size_t>(my.ranks());
  my.results.exchange(microbatches);
  my.results.fetch({}, microbatches, result);
  my.device.leave_step();
  result.tokens = my.loop.tokens();
  return result;
}

}  // namespace lockstep
