#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/train/trainer_impl.h"
#include "kernels/core/fault.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

// Counts are stored as low and high halves, which floats hold exactly.
std::vector<float> halves(const std::vector<std::int32_t>& counts) {
  std::vector<float> halves;
  for (const std::int32_t count : counts) halves.push_back(static_cast<float>(count & 0xffff));
  for (const std::int32_t count : counts) halves.push_back(static_cast<float>(count >> 16));
  return halves;
}
void add_halves(const std::vector<float>& halves, std::vector<std::int32_t>& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto low = static_cast<std::int32_t>(halves[i]),
               high = static_cast<std::int32_t>(halves[counts.size() + i]);
    counts[i] += low + (high << 16);
  }
}

}  // namespace

template <class T>
void Trainer::Impl::write(Tensor<T> tensor, const std::vector<T>& values) const {
  device.host_writes(values.data(), values.size() * sizeof(T));
  loop.compute().copy(tensor.data, values.data(), values.size() * sizeof(T),
                      CopyKind::host_to_device);
  loop.compute().synchronize();
}

std::vector<ResidentShard> Trainer::Impl::shards_at(const Progress& progress) const {
  return resident_shards(loop, progress, replica(), ranks(), sharded());
}

Progress Trainer::Impl::progress() const {
  return {.steps = steps_done,
          .microbatches = microbatches_done * ranks(),
          .ranks = ranks(),
          .folds = folds_within_a_step(scenario, ranks())};
}

// Gives each rank the largest of all ranks, which is what the step rolls.
void Trainer::Impl::share_pending_amaxes() const {
  const auto [own, of_ranks] = loop.parameters().pending();
  if (!of_ranks) return;
  loop.exchange_amaxes();
  const std::vector<std::uint32_t> all = read(of_ranks);
  std::vector<std::uint32_t> most(own.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint32_t& word = most[i % most.size()];
    word = std::max(word, all[i]);
  }
  write(own, most);
}

void Trainer::save(const std::string& path) const {
  const Impl& my = *impl_;
  const Progress progress = my.progress();
  if (progress.microbatches > 0) my.share_pending_amaxes();
  const Metadata identity = run_identity(my.scenario);
  RunState state{identity, {}};
  state.metadata.merge(metadata_of(progress));
  for (ResidentShard& shard : my.shards_at(progress)) {
    shard.stored.values = shard.counts ? halves(my.read(shard.counts)) : read(shard.values);
    // No rank has all of several stages, or all experts if these lie apart, and the ranks of a
    // stage have the same but for shards and other experts.
    const bool parted = my.several_stages() || expert_ranks(my.scenario) > 1;
    const bool repeats = parted && shard.stored.on_every_rank && my.replica() >= shard.holders;
    if (repeats) shard.stored.values.clear();
    if (parted) shard.stored.on_every_rank = false;
    state.shards.push_back(std::move(shard.stored));
  }
  write_run(path, identity, state, my.of_all());
}

// Throws unless these ranks can continue from there.
void Trainer::Impl::require_continuable(const std::string& path, const Progress& progress) const {
  if (progress.microbatches == 0) return;
  const std::string within = path + ": saved within a step, after " +
                             std::to_string(progress.microbatches) + " microbatches of " +
                             std::to_string(progress.ranks) + " ranks";
  const std::int64_t all = scenario.training.microbatches_at(progress.steps) * ranks();
  if (progress.microbatches >= all || progress.ranks > progress.microbatches) {
    throw CheckpointRefused(within + ": a step has " + std::to_string(all));
  }
  if (progress.microbatches % ranks() != 0) {
    throw CheckpointRefused(within + ": " + std::to_string(ranks()) +
                            " ranks cannot have done as many each");
  }
  if (progress.folds != folds_within_a_step(scenario, ranks())) {
    throw CheckpointRefused(
        within +
        ": with no_shard and optim only as many ranks can go on, since each has folded "
        "its own gradients");
  }
}

void Trainer::Impl::hand_over_tied_weight() {
  const bool hands_over = faulty("load-leaves-the-tied-copy", true, false);
  if (!hands_over) return;
  loop.send_tied_weight();
  loop.receive_tied_weight();
}

static void settle_tied_weight(StepLoop& loop) {
  const bool settles = faulty("load-beside-the-tied-weight", true, false);
  if (settles) loop.await_tied_weight_sent();
}

static void settle_gathers(Sharder* sharder) {
  const bool settles = faulty("load-beside-gathers", sharder != nullptr, false);
  if (settles) sharder->drain();
}

static void quantise_again(StepLoop& loop, std::int64_t step) {
  const bool quantises = faulty("fp8-shards-not-quantised-at-a-load", true, false);
  if (quantises) loop.quantise_shards(step);
}

static void gather_again(Sharder* sharder) {
  const bool gathers = faulty("load-leaves-gathered-weights", sharder != nullptr, false);
  if (gathers) sharder->refresh();
}

// Everything is checked before anything is written.
void Trainer::load(const std::string& path) {
  Impl& my = *impl_;
  Progress progress;
  std::vector<ResidentShard> shards;
  const RunState state = read_run(path, run_identity(my.scenario), [&](const Metadata& metadata) {
    progress = progress_in(path, metadata);
    my.require_continuable(path, progress);
    shards = my.shards_at(progress);
    std::vector<TensorShard> wanted;
    for (const ResidentShard& shard : shards) wanted.push_back(shard.stored);
    return wanted;
  });
  // Gathers that are under way read the weights that are written now.
  settle_gathers(my.loop.sharder());
  settle_tied_weight(my.loop);
  for (const ExpertState& expert : my.loop.expert_states()) {
    if (expert.bias) my.write(expert.step, std::vector<std::int32_t>(expert.step.size()));
  }
  if (const Tensor<std::uint32_t> pending = my.loop.parameters().pending().own)
    my.write(pending, std::vector<std::uint32_t>(pending.size()));  // A step may have begun.
  for (std::size_t i = 0; i < shards.size(); ++i) my.restore(shards[i], state.shards[i]);
  my.loop.parameters().round(my.loop.compute());
  quantise_again(my.loop, progress.steps);
  gather_again(my.loop.sharder());
  my.hand_over_tied_weight();
  my.steps_done = faulty("checkpoint-forgets-the-step", progress.steps, 0);
  my.steps_loaded = my.steps_done;
  my.microbatches_done = progress.microbatches / my.ranks();
  my.cleared = false;
  my.started = faulty("load-keeps-the-step-begun", std::optional<StepData>(), my.started);
}

void Trainer::set_weights(const std::map<std::string, std::vector<float>>& whole) {
  Impl& my = *impl_;
  require(my.steps_done == 0 && !my.started, "weights are set before the first step");
  settle_gathers(my.loop.sharder());
  my.loop.await_tied_weight_sent();
  for (const ParameterView& view : parameters()) {
    const auto found = whole.find(view.name);
    if (found == whole.end()) throw std::invalid_argument(view.name + " is missing");
    const std::vector<float>& values = found->second;
    if (std::ssize(values) != view.full_rows * view.full_cols)
      throw std::invalid_argument(view.name + " has another number of elements");
    const auto first = values.begin() + view.first;
    if (view.weight.size() > 0)
      my.write(view.weight, std::vector<float>(first, first + view.weight.size()));
  }
  my.loop.parameters().round(my.loop.compute());
  my.loop.quantise_shards(0);
  gather_again(my.loop.sharder());
  my.hand_over_tied_weight();
}

// What of the stored values goes on: all of them, but for faults.
static const std::vector<float>* kept(const std::string& kind, const std::vector<float>& values,
                                      const std::vector<float>& zeros) {
  const std::vector<float>* const left = faulty("resume-forgets-the-losses-so-far", &values,
                                                kind.ends_with("losses") ? &zeros : &values);
  return faulty("resume-forgets-the-expert-bias", left, kind == "expert_bias" ? &zeros : left);
}

void Trainer::Impl::restore(const ResidentShard& shard, const TensorShard& stored) const {
  if (shard.counts) return restore_counts(shard, stored);
  if (stored.values.empty()) return;
  const std::vector<float> zeros(stored.values.size());
  const std::string kind = stored.name.substr(0, stored.name.find('/'));
  const std::vector<float>* values = kept(kind, stored.values, zeros);
  values = faulty("checkpoint-forgets-moments", values, kind == "weight" ? values : &zeros);
  values = faulty("checkpoint-forgets-the-gradients-so-far", values,
                  kind.starts_with("gradient") ? &zeros : values);
  write(shard.values, *values);
}

// Adds to the counts that are there, because the counts of several ranks may go to one rank.
void Trainer::Impl::restore_counts(const ResidentShard& shard, const TensorShard& stored) const {
  const std::vector<float> zeros(stored.values.size());
  std::vector<std::int32_t> counts = read(shard.counts);
  add_halves(*faulty("checkpoint-forgets-the-counts-so-far", &stored.values, &zeros), counts);
  write(shard.counts, counts);
}

}  // namespace lockstep
