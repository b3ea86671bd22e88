#include "engine/train/trainer.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/comm/communicator.h"
#include "engine/train/learning_rate.h"
#include "engine/train/norm_sequence.h"
#include "engine/train/run_state.h"
#include "engine/train/step_results.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/diagnostics/digest.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {

namespace {

// `from` has their bytes, at any alignment.
std::vector<float> widened(const StoredValues& values, const void* from) {
  std::vector<float> wide(static_cast<std::size_t>(values.rows * values.cols));
  if (!values.narrow) {
    if (!wide.empty()) std::memcpy(wide.data(), from, values.bytes());
    return wide;
  }
  std::vector<bf16> narrow(wide.size());
  if (!wide.empty()) std::memcpy(narrow.data(), from, values.bytes());
  std::transform(narrow.begin(), narrow.end(), wide.begin(), [](bf16 x) { return lockstep::load(x); });
  return wide;
}

// Counts as low and high halves: floats hold them exactly.
std::vector<float> halves(const std::vector<std::int32_t>& counts) {
  std::vector<float> parts;
  for (const std::int32_t count : counts) parts.push_back(static_cast<float>(count & 0xffff));
  for (const std::int32_t count : counts) parts.push_back(static_cast<float>(count >> 16));
  return parts;
}
void add_halves(const std::vector<float>& parts, std::vector<std::int32_t>& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] += static_cast<std::int32_t>(parts[i]) + (static_cast<std::int32_t>(parts[counts.size() + i]) << 16);
  }
}

}  // namespace

struct Trainer::Impl {
  Impl(Device& device_, const Scenario& scenario_, const DataSource& data_, const TrainerOptions& options_)
      : device(device_),
        scenario(scenario_),
        data(data_),
        options(join(options_)),
        loop_owner(make_step_loop(device_, scenario, options)),
        loop(*loop_owner),
        pool(device_),
        norm_sequence(loop.compute(), pool, loop.parameters(), sharded() ? &loop.sharder()->layout() : nullptr,
                      communicator()),
        norm(pool.make<float>(1, 2)),
        digest(pool.make<std::uint64_t>(1, 2 * (1 + ranks()))),
        results(device_, pool, loop, communicator()) {}

  // Takes its place among the ranks of the run. One rank that shards exchanges with itself; one that does not has
  // nothing to exchange.
  TrainerOptions join(TrainerOptions from) {
    const bool several = scenario.parallel.data > 1;
    if (!several && scenario.fsdp.strategy == Sharding::no_shard) from.communicator = nullptr;
    if (!several && scenario.fsdp.strategy != Sharding::no_shard && from.communicator == nullptr) {
      lone = make_lone_communicator(device);
      from.communicator = lone.get();
    }
    require(!several || from.communicator != nullptr, "a run of several ranks has a communicator");
    require(from.communicator == nullptr || from.communicator->size() == scenario.parallel.data,
            "the communicator joins the ranks of the scenario");
    device.place.rank = from.communicator == nullptr ? 0 : from.communicator->rank();
    return from;
  }
  Communicator* communicator() const { return options.communicator; }
  int ranks() const { return communicator() == nullptr ? 1 : communicator()->size(); }
  bool sharded() const { return scenario.fsdp.strategy != Sharding::no_shard; }
  StepData take_data();
  void start();
  void run_to(std::int64_t microbatches);
  std::int64_t microbatches() const;  // Of this rank in the step that is started.
  void clear_gradients();
  void draw_ahead();
  void load_state(const StepData& data, bool training);
  void sum_gradients(const Stream& stream);
  void optimize();
  void update_weights(const Stream& stream, int first, int end);
  template <class T>
  std::vector<T> read(Tensor<T> tensor) const;
  std::byte* stage(std::span<const StoredValues> list);
  template <class T>
  void write(Tensor<T> tensor, const std::vector<T>& values) const;
  Progress progress() const;
  std::vector<PlacedPart> parts_at(const Progress& progress) const;
  void require_mine(const std::string& path, const Progress& progress) const;
  void restore(const PlacedPart& part, const StatePart& stored) const;

  Device& device;
  const Scenario scenario;
  const DataSource& data;
  std::unique_ptr<Communicator> lone;
  TrainerOptions options;
  std::unique_ptr<StepLoop> loop_owner;
  StepLoop& loop;
  TensorPool pool;
  NormSequence norm_sequence;
  Tensor<float> norm;
  Tensor<std::uint64_t> digest;  // This rank's, then every rank's.
  StepResults results;
  std::optional<PinnedBuffer> staged;  // What a judge reads on its way.
  std::int64_t steps_done = 0;
  std::int64_t microbatches_done = 0;  // This rank's, of the step after those.
  std::optional<StepData> started;     // The documents of that step, where they are loaded.
  bool cleared = false;                // Gradients are zero.
  StepData ahead;                      // Of step `ahead_of`.
  std::int64_t ahead_of = -1;
  float learning_rate = 0;
};

Trainer::Trainer(Device& device, const Scenario& scenario, const DataSource& data, const TrainerOptions& options)
    : impl_(std::make_unique<Impl>(device, scenario, data, options)) {}
Trainer::~Trainer() = default;

// ---- A step ---------------------------------------------------------------------------------------------------------

void Trainer::Impl::load_state(const StepData& data, bool training) {
  const std::int64_t t = steps_done + 1;
  const Scenario::Training::Optimizer& optimizer = scenario.training.optimizer;
  const std::uint64_t seed = static_cast<std::uint64_t>(scenario.training.seed);
  learning_rate = lockstep::learning_rate(optimizer, fault("learning-rate-baked") ? 1 : t);
  std::int64_t targets = fault("loss-normaliser-baked") ? this->data.training(0).targets : data.targets;
  if (fault("normalised-by-the-ranks-again")) targets *= ranks();
  const bool baked = fault("microbatch-share-baked");
  const auto microbatches = baked ? static_cast<std::size_t>(scenario.training.microbatches) : data.microbatches.size();
  loop.loader().load_state(
      {.seed_low = static_cast<std::uint32_t>(seed),
       .seed_high = static_cast<std::uint32_t>(seed >> 32),
       .step = static_cast<std::uint32_t>(fault("dropout-key-baked") ? 0 : steps_done),
       .inverse_targets =
           div(1.0f, static_cast<float>(targets == 0 && !fault("normaliser-of-no-target") ? 1 : targets)),
       .learning_rate = learning_rate,
       .bias_correction1 = bias_correction(
           optimizer.beta1, fault("bias-correction-of-a-short-table") ? std::min<std::int64_t>(t, 8) : t),
       .bias_correction2 = bias_correction(optimizer.beta2, fault("bias-correction-baked") ? 1 : t),
       .inverse_microbatches = div(1.0f, static_cast<float>(microbatches))},
      training);
}

// For the next step, while the device works: at its start the device would wait for the host.
void Trainer::Impl::clear_gradients() {
  device.place.part = "gradients";
  loop.parameters().zero_gradients(loop.compute());
  cleared = true;
}

// While the device works. What fails here is drawn again, and fails, in the step that needs it, if one comes.
void Trainer::Impl::draw_ahead() {
  ahead_of = -1;
  try {
    ahead = data.training(steps_done + 1);
    ahead_of = steps_done + 1;
  } catch (const std::exception&) {
    ahead = {};
  }
}

StepData Trainer::Impl::take_data() {
  if (ahead_of != steps_done) return data.training(steps_done);
  ahead_of = -1;
  return std::move(ahead);
}

void Trainer::Impl::start() {
  if (started) return;
  StepData data = take_data();
  device.enter_step(steps_done);
  load_state(data, true);
  loop.start(steps_done, data, cleared || microbatches_done > 0);
  started = std::move(data);
}

std::int64_t Trainer::Impl::microbatches() const { return std::ssize(started->microbatches) / ranks(); }

// What fails here begins again with the next call.
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

std::int64_t Trainer::microbatches_done() const { return impl_->microbatches_done; }

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
  my.results.fetch(my.norm, static_cast<std::size_t>(my.microbatches_done), result);
  result.learning_rate = my.learning_rate;
  result.tokens = my.loop.tokens();
  ++my.steps_done;
  my.microbatches_done = 0;
  my.started.reset();
  my.device.leave_step();
  if (my.options.listener != nullptr) my.options.listener->step_done();
  return result;
}

// The unit whose gradients came last is reduced while the others are summed up. The losses go with the sums: each call
// by itself would keep everybody waiting.
void Trainer::Impl::sum_gradients(const Stream& stream) {
  const int count = static_cast<int>(loop.parameters().specs().size());
  Sharder* const sharder = loop.sharder();
  if (sharded()) {
    const ShardLayout& layout = sharder->layout();
    for (int unit = static_cast<int>(layout.units.size()) - 1; unit >= 0; --unit) {
      const auto [first, end] = layout.parameters(layout.units[static_cast<std::size_t>(unit)]);
      sharder->await_gradients(unit);
      norm_sequence.sum_own_rows(stream, first, end);
    }
  }
  if (sharder != nullptr) sharder->await_gradients();
  if (!sharded()) norm_sequence.sum_own_rows(stream, 0, count);
  const auto exchange = [&] {
    norm_sequence.exchange(stream);
    results.exchange(static_cast<std::size_t>(microbatches_done));
  };
  communicator() == nullptr ? exchange() : communicator()->together(exchange);
}

// Units that stay whole come first: the others learn of their new weights while the rest is computed.
void Trainer::Impl::optimize() {
  const Stream& stream = loop.compute();
  device.place.part = "gradient_norm";
  sum_gradients(stream);
  stream.submit(GradientNorm{.sums = norm_sequence.sums(stream),
                             .norm = norm,
                             .max_norm = static_cast<float>(scenario.training.optimizer.clip)});
  device.place.part = "expert_bias";
  update_biases(stream, loop.expert_states(), communicator());
  device.place.part = "optimizer";
  if (!sharded()) {
    update_weights(stream, 0, static_cast<int>(loop.parameters().specs().size()));
  } else {
    Sharder& sharder = *loop.sharder();
    const std::vector<Unit>& units = sharder.layout().units;
    for (const bool staying : {true, false}) {
      for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
        if (sharder.stays(unit) != staying) continue;
        const auto [first, end] = sharder.layout().parameters(units[static_cast<std::size_t>(unit)]);
        update_weights(stream, first, end);
        if (!fault("weights-not-gathered-after-the-optimizer")) sharder.refresh(unit);
      }
    }
  }
  loop.loader().state_consumed(stream);
}

// Of the parameters [first, end).
void Trainer::Impl::update_weights(const Stream& stream, int first, int end) {
  const Scenario::Training::Optimizer& config = scenario.training.optimizer;
  if (fault("optimizer-skips-a-step-without-targets") && started->targets == 0) return;
  for (const ParameterView& p : loop.parameters().views()) {
    if (p.index < first || p.index >= end || p.weight.size() == 0) continue;
    stream.submit(
        AdamW{.g = p.gradient,
              .norm = norm,
              .state = loop.loader().state(true),
              .w = p.weight,
              .m = p.m,
              .v = p.v,
              .copy = fault("bf16-weights-not-refreshed") ? Tensor<bf16>{} : p.copy,
              .beta1 = static_cast<float>(config.beta1),
              .one_minus_beta1 = static_cast<float>(1.0 - config.beta1),
              .beta2 = static_cast<float>(config.beta2),
              .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
              .eps = fault("adam-has-its-own-eps") ? 1e-8f : static_cast<float>(config.eps),
              .weight_decay = p.is_vector && !fault("vectors-decay") ? 0.0f : static_cast<float>(config.weight_decay)});
  }
}

// ---- Evaluation -----------------------------------------------------------------------------------------------------

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
  my.load_state(data, false);
  my.loop.evaluate(step, data);
  if (fault("evaluation-counts-as-a-step")) ++my.steps_done;
  StepResult result;
  const std::size_t microbatches = data.microbatches.size() / static_cast<std::size_t>(my.ranks());
  my.results.exchange(microbatches);
  my.results.fetch({}, microbatches, result);
  my.device.leave_step();
  result.tokens = my.loop.tokens();
  return result;
}

std::int64_t Trainer::steps_done() const { return impl_->steps_done; }

// ---- Reading --------------------------------------------------------------------------------------------------------

template <class T>
std::vector<T> Trainer::Impl::read(Tensor<T> tensor) const {
  require(tensor.pitch == tensor.cols || tensor.rows == 1, "what is read is contiguous");
  const std::size_t bytes = static_cast<std::size_t>(tensor.size()) * sizeof(T);
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  if (bytes == 0) return values;
  std::memset(values.data(), 0xff, bytes);  // No value: a copy that does not happen is seen.
  loop.compute().copy(values.data(), tensor.data, bytes, CopyKind::device_to_host);
  loop.compute().synchronize();
  device.host_reads(values.data(), bytes);
  return values;
}

// Those on the device one behind the other in pinned memory. A wait each, or a copy to memory that is not pinned, would
// cost a GPU that is shared by several processes more than the step.
std::byte* Trainer::Impl::stage(std::span<const StoredValues> list) {
  std::size_t bytes = 0;
  for (const StoredValues& values : list) bytes += values.on_host ? 0 : values.bytes();
  if (bytes == 0) return nullptr;
  if (!staged || staged->bytes() < bytes) staged.emplace(device, std::bit_ceil(bytes));
  auto* const memory = static_cast<std::byte*>(staged->data());
  device.host_writes(memory, bytes);
  std::memset(memory, 0xff, bytes);  // No value: a copy that does not happen is seen.
  std::byte* to = memory;
  for (const StoredValues& values : list) {
    if (values.on_host) continue;
    if (values.bytes() > 0) loop.compute().copy(to, values.data, values.bytes(), CopyKind::device_to_host);
    to += values.bytes();
  }
  loop.compute().synchronize();
  device.host_reads(memory, bytes);
  return memory;
}

template <class T>
void Trainer::Impl::write(Tensor<T> tensor, const std::vector<T>& values) const {
  device.host_writes(values.data(), values.size() * sizeof(T));
  loop.compute().copy(tensor.data, values.data(), values.size() * sizeof(T), CopyKind::host_to_device);
  loop.compute().synchronize();
}

std::vector<ExpertBiasView> Trainer::expert_biases() const {
  std::vector<ExpertBiasView> views;
  for (const ExpertState& state : impl_->loop.expert_states()) {
    if (state.bias) views.push_back({state.layer, state.bias});
  }
  return views;
}

const std::vector<ParameterView>& Trainer::parameters() const { return impl_->loop.parameters().views(); }

std::vector<float> Trainer::read(StoredValues values) const { return read({&values, 1}).front(); }

std::vector<std::vector<float>> Trainer::read(std::span<const StoredValues> list) const {
  const std::byte* staged = impl_->stage(list);
  std::vector<std::vector<float>> read;
  for (const StoredValues& values : list) {
    if (values.on_host) impl_->device.host_reads(values.data, values.bytes());
    const void* const from = values.on_host ? values.data : staged;
    if (!values.on_host) staged += values.bytes();
    read.push_back(widened(values, from));
  }
  return read;
}

// Sums over elements, whatever rank has them.
std::string Trainer::weight_digest() const {
  const Impl& my = *impl_;
  const Stream& stream = my.loop.compute();
  const Tensor<std::uint64_t> own = my.digest.columns(0, 2), all = my.digest.columns(2, my.digest.cols - 2);
  stream.fill(own.data, 0, 2 * sizeof(std::uint64_t));
  for (const ParameterView& p : parameters()) {
    if (p.weight.size() == 0) continue;
    stream.submit(Digest{.values = p.weight,
                         .sums = own,
                         .first = static_cast<std::uint64_t>(p.first),
                         .tensor = static_cast<std::uint64_t>(p.index)});
  }
  if (my.sharded()) my.communicator()->all_gather(stream, {"digest"}, all.data, own.data, 2 * sizeof(std::uint64_t));
  std::uint64_t low = 0, high = 0;
  const std::vector<std::uint64_t> sums = my.read(my.sharded() ? all : own);
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    low += sums[i];
    high += sums[i + 1];
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

std::vector<RoutedPairs> Trainer::routed_pairs() const {
  const Impl& my = *impl_;
  std::vector<RoutedPairs> layers;
  for (const ExpertState& state : my.loop.expert_states()) {
    layers.push_back({state.layer, my.read(state.total), my.read(state.kept)});
    my.device.host_syncs -= 2;  // Who asks waits, not the run; ranks that share a device ask at any time.
  }
  return layers;
}

std::map<std::string, std::int64_t> Trainer::counters() const {
  const Impl& my = *impl_;
  const RunCounters run = my.loop.counters();
  std::int64_t pairs = 0, kept = 0, experts = 0;
  for (const RoutedPairs& layer : routed_pairs()) {
    pairs = std::accumulate(layer.chosen.begin(), layer.chosen.end(), pairs);
    kept = std::accumulate(layer.kept.begin(), layer.kept.end(), kept);
    experts += std::count_if(layer.chosen.begin(), layer.chosen.end(), [](std::int64_t n) { return n > 0; });
  }
  return {{"graphs_captured", my.loop.graphs().captured},
          {"graph_replays", my.loop.graphs().launches},
          {"eager_fallbacks", run.eager_fallbacks},
          {"graphs_evicted", my.loop.graphs().evicted},
          {"recaptures", run.recaptures},
          {"max_outstanding", run.max_outstanding},
          {"slots_live", run.slots_live},
          {"evaluations", run.evaluations},
          {"host_syncs", my.device.host_syncs},
          {"expert_rows_read", my.device.expert_rows_read[my.device.place.rank]},
          {"tokens_dropped", pairs - kept},
          {"pairs_routed", pairs},
          {"experts_used", experts},
          {"bytes_planned", run.bytes_planned},
          {"bytes_offloaded", run.bytes_offloaded},
          {"bytes_reloaded", run.bytes_reloaded},
          {"collectives", my.communicator() == nullptr ? 0 : my.communicator()->collectives},
          {"collectives_in_graphs", run.collectives_in_graphs},
          {"persistent_buffers", run.persistent_buffers},
          {"late_gathers", run.late_gathers},
          {"offloads_in_flight", run.offloads_in_flight},
          {"offloads_delayed", run.offloads_delayed},
          {"spare_buffers", run.spare_buffers},
          {"ops", my.device.ops},
          {"ops_recomputed", my.device.ops_recomputed[my.device.place.rank]},
          {"attention_by_cudnn", my.device.attention_by_cudnn[my.device.place.rank]},
          {"delays_applied", my.device.delays},
          {"bytes_poisoned", my.device.backend().bytes_poisoned()},
          {"bytes_poisoned_padding", my.device.bytes_poisoned},
          {"bytes_poisoned_staging", my.loop.loader().bytes_poisoned()}};
}

// ---- Checkpoint -----------------------------------------------------------------------------------------------------

std::vector<PlacedPart> Trainer::Impl::parts_at(const Progress& progress) const {
  return placed_parts(loop, progress, device.place.rank, ranks(), sharded());
}

void Trainer::save(const std::string& path) const {
  const Impl& my = *impl_;
  const Progress progress = my.progress();
  RunState state{run_identity(my.scenario), {}};
  state.metadata.merge(metadata_of(progress));
  for (PlacedPart& part : my.parts_at(progress)) {
    part.stored.values = part.counts ? halves(my.read(part.counts)) : read(part.values);
    state.parts.push_back(std::move(part.stored));
  }
  write_run(path, state, my.communicator());
}

Progress Trainer::Impl::progress() const {
  return {.steps = steps_done,
          .microbatches = microbatches_done * ranks(),
          .ranks = ranks(),
          .folds = folds_within_a_step(scenario, ranks())};
}

// Whether these ranks can go on from there.
void Trainer::Impl::require_mine(const std::string& path, const Progress& progress) const {
  if (progress.microbatches == 0) return;
  const std::string within = path + ": saved within a step, after " + std::to_string(progress.microbatches) +
                             " microbatches of " + std::to_string(progress.ranks) + " ranks";
  const std::int64_t all = scenario.training.microbatches_at(progress.steps) * ranks();
  if (progress.microbatches >= all || progress.ranks > progress.microbatches) {
    throw std::runtime_error(within + ": a step has " + std::to_string(all));
  }
  if (progress.microbatches % ranks() != 0) {
    throw std::runtime_error(within + ": " + std::to_string(ranks()) + " ranks cannot have done as many each");
  }
  if (progress.folds != folds_within_a_step(scenario, ranks())) {
    throw std::runtime_error(within +
                             ": with no_shard and optim only as many ranks can go on, since each has folded "
                             "its own gradients");
  }
}

// Everything is checked before anything is written.
void Trainer::load(const std::string& path) {
  Impl& my = *impl_;
  Progress progress;
  std::vector<PlacedPart> parts;
  const RunState state = read_run(path, run_identity(my.scenario), [&](const Metadata& metadata) {
    progress = progress_in(path, metadata);
    my.require_mine(path, progress);
    parts = my.parts_at(progress);
    std::vector<StatePart> wanted;
    for (const PlacedPart& part : parts) wanted.push_back(part.stored);
    return wanted;
  });
  const bool sharded = my.loop.sharder() != nullptr;
  if (sharded && !fault("load-beside-gathers"))
    my.loop.sharder()->settle();  // The gathers so far read what is written now.
  for (const ExpertState& expert : my.loop.expert_states()) {
    if (expert.bias) my.write(expert.step, std::vector<std::int32_t>(static_cast<std::size_t>(expert.step.size())));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) my.restore(parts[i], state.parts[i]);
  my.loop.parameters().round(my.loop.compute());
  if (sharded && !fault("load-leaves-gathered-weights")) my.loop.sharder()->refresh();
  my.steps_done = fault("checkpoint-forgets-the-step") ? 0 : progress.steps;
  my.microbatches_done = progress.microbatches / my.ranks();
  my.cleared = false;
  if (!fault("load-keeps-the-step-begun")) my.started.reset();
}

void Trainer::Impl::restore(const PlacedPart& part, const StatePart& stored) const {
  const std::string kind = stored.name.substr(0, stored.name.find('/'));
  if (fault("checkpoint-forgets-moments") && kind != "weight") return;
  if (fault("checkpoint-forgets-the-gradients-so-far") && kind.starts_with("gradient")) return;
  if (fault("checkpoint-forgets-the-counts-so-far") && kind.starts_with("counts")) return;
  if (part.counts) {
    std::vector<std::int32_t> counts = read(part.counts);
    add_halves(stored.values, counts);
    write(part.counts, counts);
  } else if (!stored.values.empty()) {
    write(part.values, stored.values);
  }
}

}  // namespace lockstep
