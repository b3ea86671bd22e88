#include "engine/train/step_loop.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/data/step_packs.h"
#include "engine/nn/model.h"
#include "engine/plan/regions.h"
#include "engine/plan/schedule.h"
#include "engine/train/step_listener.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

int most_microbatches(const Scenario::Training& training) {
  std::int64_t most = training.microbatches;
  for (const Scenario::MicrobatchChange& change : training.change_microbatches_at) {
    most = std::max(most, change.microbatches);
  }
  return static_cast<int>(most);
}

template <class T>
std::unique_ptr<const ShardLayout> make_layout(const Scenario& scenario, const TrainerOptions& options) {
  if (options.communicator == nullptr) return nullptr;
  const ParameterList list(scenario.model);
  return std::make_unique<ShardLayout>(list, scenario, options.communicator->size(), !std::is_same_v<T, float>);
}

// Microbatches between their forward and their backward pass, and the slots that they hold.
struct Outstanding {
  explicit Outstanding(int slots) : of_slot(static_cast<std::size_t>(slots)) {}
  void begins(int slot) {
    ++of_slot[static_cast<std::size_t>(slot)];
    const std::int64_t all = std::accumulate(of_slot.begin(), of_slot.end(), 0);
    require(all <= std::ssize(of_slot), "a slot is free before the next forward pass takes it");
    most = std::max(most, all);
    most_slots =
        std::max<std::int64_t>(most_slots, std::ssize(of_slot) - std::count(of_slot.begin(), of_slot.end(), 0));
  }
  void ends(int slot) { --of_slot[static_cast<std::size_t>(slot)]; }

  std::vector<int> of_slot;
  std::int64_t most = 0, most_slots = 0;
};

template <class T>
class Loop : public StepLoop {
 public:
  Loop(Device& device, const Scenario& scenario, const TrainerOptions& options);

  void start(std::int64_t step, const StepData& data, bool continued) override;
  void train(std::int64_t step, int first, int end) override;
  void evaluate(std::int64_t step, const StepData& data) override;

  const Stream& compute() const override { return compute_; }
  const Parameters& parameters() const override { return parameters_; }
  Loader& loader() override { return loader_; }
  Tensor<float> losses() const override { return losses_; }
  Tensor<float> router_losses() const override { return router_losses_; }
  const std::vector<ExpertState>& expert_states() const override { return model_.expert_states(); }
  RunCounters counters() const override;
  const GraphSet& graphs() const override { return graphs_; }
  Sharder* sharder() override { return sharder_.get(); }
  std::int64_t tokens() const override { return packs_.tokens(); }

 private:
  // What one of this rank's microbatches runs with. `bucket` < 0: more documents than the largest bucket holds.
  struct Work {
    int microbatch, slot, bucket;
    bool training;
    bool replay;                   // Its regions are replayed.
    std::optional<int> next = {};  // The slot whose copies back may begin.
  };
  Work work(int microbatch, bool training, bool replay) const;
  PassContext context(const Work& work);
  HookCall call_of(const Work& work) const {
    const std::int64_t count =
        fault("reduced-behind-the-first-count") ? scenario_.training.microbatches : packs_.count();
    return {.microbatch = work.microbatch, .last = work.microbatch + 1 == count};
  }
  void run_hooks(int module, HookPoint point, const Work& work) {
    if (fault("no-reduction-without-documents") && point == HookPoint::backward_post &&
        packs_.tokens_in(work.microbatch) == 0) {
      return;
    }
    hooks_.run(module, point, call_of(work));
  }
  // Gathers run while documents are loaded. A graph of all passes brings its own.
  void look_ahead() {
    if (sharder_ && scenario_.cuda_graph.impl != GraphImpl::full_iteration) sharder_->look_ahead();
  }
  void begin_passes(const std::vector<Pass>& passes) {
    if (sharder_) sharder_->begin(passes);
  }
  void end_passes(Sharder::Passes passes) {
    if (sharder_) sharder_->end(passes);
  }
  void settle();

  void forward(const Work& work);
  void keep_router_losses(const Work& work);
  void backward(const Work& work);
  void run_segment(const Work& work, const Segment& segment, bool forward);
  void run_layers(const Work& work, const Segment& segment, bool forward);

  void train_passes(int first, int end, bool replay);
  void iteration();   // Every pass of a training step, for one graph or none.
  void evaluation();  // Every forward pass of an evaluation.
  void train_full_iteration(std::int64_t step);

  void capture_regions();
  void capture_bucket(int bucket);
  void capture_region(const Segment& segment, int slot, int bucket);
  void launch(const GraphKey& key, const GraphSet::Body& body);
  bool replays(std::int64_t step) const;
  void prepare_graphs(std::int64_t step);
  void note(const Outstanding& outstanding, int microbatches);
  const std::vector<NamedTensor>& activations(int slot);  // Readable now.

  Device& device_;
  const Scenario& scenario_;
  TrainerOptions options_;
  Stream compute_;
  TensorPool parameter_pool_, exchanged_pool_;
  std::unique_ptr<const ShardLayout> layout_;  // Null without a sharder.
  Parameters parameters_;
  std::unique_ptr<Sharder> sharder_;
  Modules modules_;
  Hooks hooks_;
  Offloader offloader_;
  Model<T> model_;
  Loader loader_;
  StepPacks packs_;
  TensorPool pool_;
  Tensor<float> losses_, router_losses_;
  GraphSet graphs_;
  bool poisons_padding_;
  std::vector<Segment> segments_;
  RunCounters counters_;
};

template <class T>
Loop<T>::Loop(Device& device, const Scenario& scenario, const TrainerOptions& options)
    : device_(device),
      scenario_(scenario),
      options_(options),
      compute_(device, "compute"),
      parameter_pool_(device),
      exchanged_pool_(device, options.communicator),
      layout_(make_layout<T>(scenario, options)),
      parameters_(parameter_pool_, exchanged_pool_, scenario, !std::is_same_v<T, float>, layout_.get(),
                  device.place.rank),
      sharder_(layout_ ? std::make_unique<Sharder>(compute_, *options.communicator, scenario, *layout_, parameters_)
                       : nullptr),
      modules_{static_cast<int>(scenario.model.pattern.size())},
      hooks_(modules_.count()),
      offloader_(device, compute_, scenario,
                 [this](int layer, int slot) {
                   return model_.slot(slot).layers[static_cast<std::size_t>(layer)]->rows_in_use;
                 }),
      model_(device, compute_, offloader_, parameters_, scenario, static_cast<int>(scenario.training.in_flight),
             layout_ ? layout_->ranks : 0),
      loader_(device, pack_shape(scenario), pack_capacities(scenario).back(), most_microbatches(scenario.training),
              holds(scenario.checker.poison, Poison::staging)),
      packs_(loader_, pack_shape(scenario), pack_capacities(scenario), device.place.rank, layout_ ? layout_->ranks : 1),
      pool_(device),
      losses_(pool_.make<float>(1, most_microbatches(scenario.training))),
      graphs_(
          compute_,
          [this] {
            std::vector<const void*> table;
            parameter_pool_.append_addresses(table);
            exchanged_pool_.append_addresses(table);
            if (sharder_) sharder_->append_addresses(table);
            model_.append_addresses(table);
            loader_.append_addresses(table);
            pool_.append_addresses(table);
            offloader_.append_addresses(table);
            return table;
          },
          options.dry_run_ledger, scenario.cuda_graph.graph_memory_limit),
      poisons_padding_(holds(scenario.checker.poison, Poison::padding)),
      segments_(segments(scenario)) {
  const std::int64_t routers = static_cast<std::int64_t>(model_.expert_states().size());
  const Scenario::Model::Moe& moe = scenario.model.moe;
  if (routers > 0 && (moe.aux_loss.millionths > 0 || moe.z_loss.millionths > 0)) {
    router_losses_ = pool_.make<float>(losses_.cols, 2 * routers);
  }
  parameters_.initialize(compute_);
  model_.initialize(compute_);
  if (!sharder_) return;
  sharder_->attach(hooks_);
  sharder_->initialize();
  sharder_->refresh();
}

template <class T>
RunCounters Loop<T>::counters() const {
  RunCounters counters = counters_;
  counters.bytes_offloaded = offloader_.moved.out;
  counters.bytes_reloaded = offloader_.moved.in;
  counters.offloads_in_flight = offloader_.most_in_flight;
  counters.offloads_delayed = offloader_.delayed;
  counters.spare_buffers = offloader_.spare_buffers();
  if (sharder_) counters.persistent_buffers = sharder_->persistent_buffers();
  if (sharder_) counters.late_gathers = sharder_->late_gathers();
  return counters;
}

template <class T>
typename Loop<T>::Work Loop<T>::work(int microbatch, bool training, bool replay) const {
  return {microbatch, microbatch % model_.slots(), packs_.bucket(microbatch), training,
          replay && packs_.fits(microbatch)};
}

template <class T>
PassContext Loop<T>::context(const Work& work) {
  device_.place.microbatch = work.microbatch;
  const std::int64_t overflow = work.bucket < 0 ? loader_.overflow_capacity(work.microbatch) : 0;
  return {compute_, model_.pack(work.slot, work.bucket, overflow), loader_.state(work.training), work.training,
          model_.workspace()};
}

// ---- One microbatch -------------------------------------------------------------------------------------------------

template <class T>
void Loop<T>::forward(const Work& work) {
  const PassContext pass = context(work);
  const MicrobatchInputs& inputs = loader_.inputs(work.microbatch);
  Slot<T>& slot = model_.slot(work.slot);
  if (poisons_padding_) {
    pass.part("padding");
    model_.poison(slot);
  }
  pass.part("metadata");
  compute_.submit(build_pack(model_.pack_shape(), loader_.table(work.microbatch, work.bucket < 0), pass.pack));
  if (pass.pack.cudnn) compute_.submit(build_cudnn_tables(model_.attention(), pass.pack));
  offloader_.enter_forward(-1, work.slot);
  run_hooks(Modules::embedding(), HookPoint::forward_pre, work);
  model_.embed(pass, inputs, slot);
  run_hooks(Modules::embedding(), HookPoint::forward_post, work);
  const int head = offloader_.plan().segments;
  for (int i = 0; i < head; ++i) {
    if (work.next) offloader_.look_ahead(i, *work.next);
    offloader_.enter_forward(i, work.slot);
    run_segment(work, segments_[static_cast<std::size_t>(i)], true);
    if (work.training) offloader_.leave_forward(i, work.slot);
  }
  keep_router_losses(work);
  if (work.next) offloader_.look_ahead(head, *work.next);
  run_hooks(modules_.head(), HookPoint::forward_pre, work);
  model_.head(pass, inputs, slot, losses_.columns(work.microbatch, 1));
  run_hooks(modules_.head(), HookPoint::forward_post, work);
  if (work.training) offloader_.leave_forward(head, work.slot);
}

// They lie in the slot, which a later microbatch takes.
template <class T>
void Loop<T>::keep_router_losses(const Work& work) {
  if (!router_losses_) return;
  const int row = fault("router-losses-kept-by-slot") ? work.slot : work.microbatch;
  float* to = router_losses_.data + row * router_losses_.pitch;
  for (const ExpertState& state : model_.expert_states()) {
    const Tensor<float> from = model_.slot(work.slot).layers[static_cast<std::size_t>(state.layer)]->losses;
    compute_.copy(to, from.data, 2 * sizeof(float), CopyKind::device_to_device);
    to += 2;
  }
}

template <class T>
void Loop<T>::backward(const Work& work) {
  const PassContext pass = context(work);
  const MicrobatchInputs& inputs = loader_.inputs(work.microbatch);
  Slot<T>& slot = model_.slot(work.slot);
  const int head = offloader_.plan().segments;
  offloader_.enter_backward(head, work.slot);
  run_hooks(modules_.head(), HookPoint::backward_pre, work);
  model_.head_backward(pass, inputs, slot);
  run_hooks(modules_.head(), HookPoint::backward_post, work);
  for (int i = head - 1; i >= 0; --i) {
    offloader_.enter_backward(i, work.slot);
    run_segment(work, segments_[static_cast<std::size_t>(i)], false);
  }
  run_hooks(Modules::embedding(), HookPoint::backward_pre, work);
  model_.embed_backward(pass, inputs, slot);
  run_hooks(Modules::embedding(), HookPoint::backward_post, work);
}

template <class T>
void Loop<T>::run_segment(const Work& work, const Segment& segment, bool forward) {
  const auto body = [&] { run_layers(work, segment, forward); };
  if (segment.region < 0 || !work.replay) return body();
  const GraphKey key{.kind = forward ? GraphKey::Kind::forward : GraphKey::Kind::backward,
                     .region = segment.region,
                     .slot = fault("graph-key-without-slot") ? 0 : work.slot,
                     .bucket = fault("graph-key-without-bucket") ? 0 : work.bucket};
  const ExtractedHooks hooks(hooks_, hooks_of(segment, forward));
  hooks.run_before(call_of(work));
  graphs_.launch(key, body);
  if (!fault("hooks-behind-a-replay-forgotten")) hooks.run_after(call_of(work));
}

template <class T>
void Loop<T>::run_layers(const Work& work, const Segment& segment, bool forward) {
  const PassContext pass = context(work);
  Slot<T>& slot = model_.slot(work.slot);
  const std::size_t count = segment.parts.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Part& part = segment.parts[forward ? i : count - 1 - i];
    for (const auto& [module, point] : hooks_before(part, forward)) run_hooks(module, point, work);
    forward ? model_.forward(pass, part, slot) : model_.backward(pass, part, slot);
    for (const auto& [module, point] : hooks_after(part, forward)) run_hooks(module, point, work);
  }
}

// ---- A training step ------------------------------------------------------------------------------------------------

template <class T>
bool Loop<T>::replays(std::int64_t step) const {
  if (fault("graphs-never-replayed")) return false;
  return scenario_.cuda_graph.impl != GraphImpl::none && step >= scenario_.cuda_graph.warmup_steps;
}

template <class T>
void Loop<T>::start(std::int64_t step, const StepData& data, bool continued) {
  device_.enter_step(step);
  look_ahead();
  packs_.load(data, compute_);
  prepare_graphs(step);
  device_.enter_step(step);
  loader_.wait_for_state(compute_);
  if (!continued) parameters_.zero_gradients(compute_);
}

template <class T>
void Loop<T>::train(std::int64_t step, int first, int end) {
  device_.enter_step(step);
  if (scenario_.cuda_graph.impl != GraphImpl::full_iteration) {
    train_passes(first, end, replays(step));
  } else if (first == 0 && end == packs_.count()) {
    train_full_iteration(step);
  } else {  // Its graph has no middle.
    if (replays(step) && end == packs_.count()) ++counters_.eager_fallbacks;
    train_passes(first, end, false);
  }
  device_.enter_step(step);
}

template <class T>
void Loop<T>::train_passes(int first, int end, bool replay) {
  Outstanding outstanding(model_.slots());
  const std::vector<Pass> passes = one_forward_one_backward(end, model_.slots(), first);
  begin_passes(passes);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    Work w = work(pass.microbatch, true, replay);
    w.next = offloader_.plan().slot_to_come(passes, i);
    if (w.replay && !graphs_.has_bucket(w.bucket)) {  // It was evicted.
      if (fault("eviction-leaves-the-bucket-eager")) w.replay = false;
      if (w.replay) capture_bucket(w.bucket);
    }
    if (pass.forward) {
      if (replay && !w.replay) ++counters_.eager_fallbacks;
      outstanding.begins(w.slot);
      loader_.wait_for(w.microbatch, compute_);
      forward(w);
      counters_.bytes_planned += offloader_.due(w.slot);
      if (options_.listener != nullptr) {
        options_.listener->forward_done(w.microbatch, activations(w.slot), true);
      }
    } else {
      backward(w);
      if (fault("host-waits-in-every-pass")) compute_.synchronize();
      outstanding.ends(w.slot);
      loader_.consumed(w.microbatch, compute_);
      if (options_.listener != nullptr) options_.listener->backward_done(w.microbatch, true);
    }
  }
  note(outstanding, end - first);
  end_passes(end == packs_.count() ? Sharder::Passes::complete : Sharder::Passes::some);
}

template <class T>
void Loop<T>::iteration() {
  const int depth = fault("iteration-graph-takes-one-at-a-time") ? 1 : model_.slots();
  const std::vector<Pass> passes = one_forward_one_backward(packs_.count(), depth);
  Outstanding outstanding(model_.slots());
  begin_passes(passes);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    Work w = work(pass.microbatch, true, false);
    if (!fault("iteration-graph-takes-each-bucket")) w.bucket = packs_.largest_bucket();
    w.next = offloader_.plan().slot_to_come(passes, i);
    pass.forward ? outstanding.begins(w.slot) : outstanding.ends(w.slot);
    pass.forward ? forward(w) : backward(w);
  }
  note(outstanding, packs_.count());
  end_passes(Sharder::Passes::complete);
  if (sharder_) sharder_->await_gradients();  // What a graph forks, it joins.
  offloader_.settle();
}

// Before a graph of several passes, and a capture of one.
template <class T>
void Loop<T>::settle() {
  offloader_.settle();
  if (sharder_) sharder_->settle();
}

template <class T>
void Loop<T>::train_full_iteration(std::int64_t step) {
  if (!replays(step) || !packs_.all_fit()) {
    if (replays(step)) ++counters_.eager_fallbacks;
    return train_passes(0, packs_.count(), false);
  }
  const GraphKey key{
      .kind = GraphKey::Kind::iteration, .bucket = packs_.largest_bucket(), .microbatches = packs_.count()};
  // Captured or recorded only, its copies do not run.
  const auto body = [this] {
    const OffloadedBytes moved = offloader_.moved;
    iteration();
    offloader_.moved = moved;
  };
  settle();
  if (!graphs_.has(key)) graphs_.capture(key, body);
  for (int m = 0; m < packs_.count(); ++m) loader_.wait_for(m, compute_);
  launch(key, body);
  counters_.bytes_planned += offloader_.plan().bytes() * packs_.count();
  offloader_.count_launch(graphs_.ledger(key));
  for (int m = 0; m < packs_.count(); ++m) loader_.consumed(m, compute_);
  if (options_.listener == nullptr) return;
  for (int m = 0; m < packs_.count(); ++m) {
    // A later microbatch in the same slot has overwritten the activations.
    options_.listener->forward_done(m, activations(m % model_.slots()), m + model_.slots() >= packs_.count());
  }
  for (int m = 0; m < packs_.count(); ++m) options_.listener->backward_done(m, m + 1 == packs_.count());
}

// Of a step of which `microbatches` ran, or were captured.
template <class T>
void Loop<T>::note(const Outstanding& outstanding, int microbatches) {
  counters_.max_outstanding = std::max(counters_.max_outstanding, outstanding.most);
  if (microbatches < model_.slots()) return;  // The rest of a step that was interrupted.
  std::int64_t& live = counters_.slots_live;
  live = live == 0 ? outstanding.most_slots : std::min(live, outstanding.most_slots);
}

template <class T>
const std::vector<NamedTensor>& Loop<T>::activations(int slot) {
  std::vector<NamedTensor>& names = model_.slot(slot).names;
  offloader_.point_to_copies(names, slot);
  return names;
}

// ---- Evaluation -----------------------------------------------------------------------------------------------------

template <class T>
void Loop<T>::evaluate(std::int64_t step, const StepData& data) {
  device_.enter_step(step);
  look_ahead();
  packs_.load(data, compute_);
  loader_.wait_for_state(compute_);
  ++counters_.evaluations;
  for (int m = 0; m < packs_.count(); ++m) loader_.wait_for(m, compute_);
  const bool graph = scenario_.cuda_graph.impl == GraphImpl::full_iteration && replays(step) && packs_.all_fit();
  if (graph) {
    const bool mixed_up = fault("evaluation-replays-the-training-graph");
    const GraphKey key{.kind = mixed_up ? GraphKey::Kind::iteration : GraphKey::Kind::evaluation,
                       .bucket = packs_.largest_bucket(),
                       .microbatches = fault("evaluation-graph-without-its-count") ? 0 : packs_.count()};
    const auto body = [this] { evaluation(); };
    settle();
    if (!graphs_.has(key)) graphs_.capture(key, body);
    launch(key, body);
  } else {
    evaluation();
  }
  for (int m = 0; m < packs_.count(); ++m) loader_.consumed(m, compute_);
  loader_.state_consumed(compute_);
}

template <class T>
void Loop<T>::evaluation() {
  const bool together = packs_.all_fit();
  std::vector<Pass> passes;
  for (int m = 0; m < packs_.count(); ++m) passes.push_back({.forward = true, .microbatch = m});
  begin_passes(passes);
  for (const Pass& pass : passes) {
    Work w = work(pass.microbatch, fault("evaluation-with-dropout"), false);
    if (together) w.bucket = packs_.largest_bucket();
    forward(w);
  }
  end_passes(Sharder::Passes::forward);
}

// ---- Graphs ---------------------------------------------------------------------------------------------------------

template <class T>
void Loop<T>::prepare_graphs(std::int64_t step) {
  if (!replays(step)) return;
  if (fault("graphs-captured-every-step")) graphs_.clear();
  const std::vector<std::int64_t>& again = scenario_.training.recapture_at;
  if (!graphs_.empty() && std::find(again.begin(), again.end(), step) != again.end()) {
    if (!fault("recapture-keeps-the-old-graphs")) graphs_.clear();
    ++counters_.recaptures;
  }
  if (scenario_.cuda_graph.impl == GraphImpl::partial && graphs_.empty()) capture_regions();
}

// One that may hold what the ranks exchange.
template <class T>
void Loop<T>::launch(const GraphKey& key, const GraphSet::Body& body) {
  if (!sharder_) return graphs_.launch(key, body);
  Communicator& communicator = sharder_->communicator();
  const Ledger& graph = graphs_.ledger(key);
  communicator.launch(compute_, graph, [&] { graphs_.launch(key, body); });
  counters_.collectives_in_graphs += std::ranges::count(graph.counters, &communicator.collectives);
}

template <class T>
void Loop<T>::capture_regions() {
  const int buckets = static_cast<int>(scenario_.cuda_graph.max_packed_seqs.size());
  for (int bucket = 0; bucket < buckets; ++bucket) capture_bucket(bucket);
}

template <class T>
void Loop<T>::capture_bucket(int bucket) {
  for (int slot = 0; slot < model_.slots(); ++slot) {
    for (const Segment& segment : segments_) {
      if (segment.region >= 0) capture_region(segment, slot, bucket);
    }
  }
}

// Nothing runs in a capture, so nothing need be there: the hooks are out of the way.
template <class T>
void Loop<T>::capture_region(const Segment& segment, int slot, int bucket) {
  for (const bool forward : {true, false}) {
    const ExtractedHooks hooks(hooks_, hooks_of(segment, forward));
    const Work w{.microbatch = slot, .slot = slot, .bucket = bucket, .training = true, .replay = true};
    graphs_.capture({.kind = forward ? GraphKey::Kind::forward : GraphKey::Kind::backward,
                     .region = segment.region,
                     .slot = slot,
                     .bucket = bucket},
                    [&] { run_layers(w, segment, forward); });
  }
}

}  // namespace

std::unique_ptr<StepLoop> make_step_loop(Device& device, const Scenario& scenario, const TrainerOptions& options) {
  const Numerics numerics = scenario.numerics.front();
  require(numerics == Numerics::fp32 || numerics == Numerics::bf16, "the precision is built");
  if (numerics == Numerics::bf16) return std::make_unique<Loop<bf16>>(device, scenario, options);
  return std::make_unique<Loop<float>>(device, scenario, options);
}

}  // namespace lockstep
