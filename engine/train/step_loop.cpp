#include "engine/train/step_loop.h"

#include <algorithm>

#include "engine/train/step_listener.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

const Scenario& require_built(const Scenario& scenario) {
  require(check_built(scenario).empty(), "all that the scenario asks for is built");
  return scenario;
}

std::unique_ptr<const ShardLayout> make_layout(const Scenario& scenario,
                                               const TrainerOptions& options, int stage) {
  if (options.communicator == nullptr) return nullptr;
  const ParameterList list(scenario.model, expert_place(scenario, 0));  // Equal on all ranks.
  return std::make_unique<ShardLayout>(list, scenario, options.communicator->size(),
                                       stores_bf16(scenario), stage);
}

std::unique_ptr<SharedMemory> make_shared_memory(TensorPool& pool, const Scenario& scenario,
                                                 int stage) {
  const bool shares = faulty("shared-memory-left-out", scenario.cuda_graph.shared_memory, false);
  return shares ? std::make_unique<SharedMemory>(pool, scenario, stage) : nullptr;
}

bool has_router_losses(const Scenario::Model::Moe& moe) {
  return moe.aux_loss.millionths > 0 || moe.z_loss.millionths > 0;
}

}  // namespace

StepLoop::StepLoop(Device& device, const Scenario& scenario, const TrainerOptions& options,
                   Communicator* all)
    : device_(device),
      scenario_(require_built(scenario)),
      options_(options),
      compute_(device, "compute"),
      stage_(device.place.rank / static_cast<int>(scenario.parallel.data)),
      replica_(device.place.rank % static_cast<int>(scenario.parallel.data)),
      parameter_pool_(device),
      exchanged_pool_(device, options.communicator),
      layout_(make_layout(scenario, options, stage_)),
      parameters_(parameter_pool_, exchanged_pool_, scenario, stores_bf16(scenario), layout_.get(),
                  replica_, stage_),
      sharder_(layout_ ? std::make_unique<Sharder>(
                             compute_, ShardCommunicators{*options.communicator, options.replicas},
                             scenario, *layout_, parameters_)
                       : nullptr),
      modules_{static_cast<int>(scenario.model.pattern.size())},
      segments_(segments(scenario)),
      chunks_(chunks_of(scenario, segments_, stage_)),
      time_line_(chunks_),
      hooks_(modules_.count(), chunks_.back().first_slot + chunks_.back().slots),
      shared_pool_(device),
      shared_(make_shared_memory(shared_pool_, scenario, stage_)),
      offloaders_(make_offloaders()),
      model_(make_step_model(device, compute_, offloaders_, shared_.get(), parameters_, scenario,
                             chunks_, layout_ ? layout_->ranks : 0, options.experts)),
      transfers_(all == nullptr ? nullptr
                                : std::make_unique<Transfers>(
                                      compute_, *all, static_cast<int>(scenario.parallel.data),
                                      model_->slots(), ways_between_stages(scenario))),
      loader_(device, pack_shape(scenario), pack_capacities(scenario).back(),
              most_microbatches(scenario.training),
              holds(scenario.checker.poison, Poison::staging)),
      packs_(loader_, pack_shape(scenario), pack_capacities(scenario), replica_,
             static_cast<int>(scenario.parallel.data), scenario.parallel.pipeline > 1),
      pool_(device),
      losses_(pool_.make<float>(1, most_microbatches(scenario.training))),
      graphs_(
          compute_, [this] { return addresses_.list(); }, options.dry_run_ledger,
          scenario.cuda_graph.graph_memory_limit),
      poisons_padding_(holds(scenario.checker.poison, Poison::padding)),
      all_slots_from_(chunks_.size() == 1 ? model_->slots()
                                          : most_microbatches(scenario.training)) {
  for (const Chunk& chunk : chunks_) {
    if (!shared_ || options_.listener == nullptr) break;
    for (int slot = chunk.first_slot; slot < chunk.first_slot + chunk.slots; ++slot)
      passing_.add(device, shared_->plan(), slot, time_line_.departure(chunk.number),
                   model_->activations(slot));
  }
  const std::int64_t routers = std::ranges::count(scenario.model.pattern, 'E');
  if (routers > 0 && has_router_losses(scenario.model.moe)) {
    router_losses_ = pool_.make<float>(losses_.cols, 2 * routers);
  }
  addresses_.add(parameter_pool_);
  addresses_.add(exchanged_pool_);
  if (sharder_) addresses_.add(*sharder_);
  addresses_.add(shared_pool_);
  addresses_.add(*model_);
  addresses_.add(loader_);
  addresses_.add(pool_);
  for (const auto& offloader : offloaders_) addresses_.add(*offloader);
  // Losses that another stage has are exchanged with them.
  for (const Tensor<float>& losses : {losses_, router_losses_}) {
    if (transfers_ && losses) compute_.fill(losses.data, 0, range_of(losses).bytes);
  }
  parameters_.initialize(compute_);
  model_->initialize(compute_);
  if (scenario.cuda_graph.capture_passes > 0) {
    capture_passes_ = std::make_unique<CapturePasses>(device, compute_, model_->pack_shape(),
                                                      pack_capacities(scenario).back(),
                                                      model_->most_filled(), most_set_aside());
  }
  if (sharder_) {
    sharder_->attach(hooks_, chunks_.back().is_last && chunks_.size() == 1);
    sharder_->initialize();
    quantise_shards(0);
    sharder_->refresh();
  }
  send_tied_weight();
  receive_tied_weight();
}

void StepLoop::await_tied_weight_sent() {
  if (transfers_ && scenario_.model.tied_embedding && chunks_.front().is_first)
    transfers_->await_weight_sent();
}

void StepLoop::send_tied_weight() {
  if (!transfers_ || !scenario_.model.tied_embedding || !chunks_.front().is_first) return;
  const bool gathered = sharder_ && scenario_.fsdp.strategy != Sharding::no_shard;
  transfers_->send_weight(parameters_.tied_weight(), [&](const Stream& stream) {
    if (gathered) sharder_->order_after(stream, 0);
  });
}

void StepLoop::receive_tied_weight() {
  if (transfers_ && scenario_.model.tied_embedding && chunks_.back().is_last)
    transfers_->receive_weight(parameters_.tied_weight());
}

Offloaders StepLoop::make_offloaders() {
  Offloaders made;
  const std::vector<OffloadPlan> plans = plan_offloads(scenario_, stage_);
  for (const Chunk& chunk : chunks_) {
    const int number = chunk.number, first = chunk.first_slot;
    made.push_back(std::make_unique<Offloader>(
        device_, compute_, scenario_, at(plans, number), copies_,
        [this, first](int layer, int slot) { return model_->rows_in_use(first + slot, layer); },
        [this, number](int bin, std::int64_t bytes) { return shared_bin(number, bin, bytes); }));
  }
  return made;
}

void* StepLoop::shared_bin(int chunk, int bin, std::int64_t bytes) {
  return shared_ ? shared_->find(bin_name(chunk, bin), LivingTensor::kAllSlots, bytes) : nullptr;
}

RunCounters StepLoop::counters() const {
  RunCounters counters = counters_;
  counters.offloads_in_flight = copies_.most_in_flight;
  for (const auto& offloader : offloaders_) {
    counters.bytes_offloaded += offloader->moved.out;
    counters.bytes_reloaded += offloader->moved.in;
    counters.offloads_delayed += offloader->delayed;
    counters.spare_buffers += offloader->spare_buffers();
    counters.copies_in_graphs += offloader->copies_in_graphs;
    counters.copy_bytes_in_graphs += offloader->copy_bytes_in_graphs;
  }
  if (shared_) counters.bytes_shared = shared_->shared_bytes();
  if (sharder_) counters.persistent_buffers = sharder_->persistent_buffers();
  if (sharder_) counters.late_gathers = sharder_->late_gathers();
  return counters;
}

// ---- A training step ----------------------------------------------------------------------------

void StepLoop::start(std::int64_t step, const StepData& data, bool continued) {
  device_.enter_step(step);
  if (first_step_ < 0) first_step_ = step;
  hooks_.forget_handlers();
  prefetch_weights();
  packs_.load(data, compute_);
  loader_.wait_for_state(compute_);
  // The host has read the results of all earlier launches.
  const GraphSet::Body destroy = [this] { graphs_.destroy_evicted(); };
  const GraphSet::Body destroyed =
      faulty<GraphSet::Body>("evicted-graphs-stay-until-a-recapture", destroy, [] {});
  destroyed();
  quantise_ahead(step, Passes::training);
  prepare_graphs(step);
  device_.enter_step(step);
  if (!continued) parameters_.zero_gradients(compute_);
}

// Gathers run while documents are loaded. A graph of all passes brings its own gathers.
void StepLoop::prefetch_weights() {
  if (sharder_ && scenario_.cuda_graph.impl != GraphImpl::full_iteration)
    sharder_->prefetch(chunks_.front());
}

void StepLoop::begin_passes(const std::vector<Pass>& passes) {
  if (sharder_) sharder_->begin(passes, chunks_);
}

void StepLoop::end_passes(Sharder::Passes passes) {
  if (sharder_) sharder_->end(passes);
}

void StepLoop::train(std::int64_t step, int first, int end) {
  device_.enter_step(step);
  launched_roll_ = false;
  if (scenario_.cuda_graph.impl != GraphImpl::full_iteration) {
    train_passes(first, end, replays(step));
  } else if (first == 0 && end == packs_.count()) {
    train_full_iteration(step);
  } else {  // A graph of the whole step cannot run a part of it.
    if (replays(step) && end == packs_.count()) count_fallback(packs_.reason());
    train_passes(first, end, false);
  }
  device_.enter_step(step);
}

// The plan of shared memory knows the order of whole steps. The tensors of several chunks that are
// alive together depend on where groups of microbatches begin, but never those of one microbatch.
std::vector<Pass> StepLoop::passes_of(int first, int end) const {
  const bool is_part = end - first < packs_.count();
  const bool one_by_one = faulty("parts-in-shared-memory-run-in-groups",
                                 is_part && shared_ && chunks_.size() > 1, false);
  return passes_of_parts(scenario_, first, end, one_by_one ? 1 : end - first, stage_);
}

void StepLoop::train_passes(int first, int end, bool replay) {
  Outstanding outstanding(model_->slots());
  const std::vector<Pass> passes = passes_of(first, end);
  begin_passes(passes);
  quantise_with_passes(Passes::training);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    MicrobatchPass pass = pass_of(passes[i].microbatch, true, replay, passes[i].chunk);
    pass.prefetch = prefetch_in(passes, i);
    const bool captured = pass.replay && has_graphs(pass);
    pass.replay = faulty("eviction-leaves-the-bucket-eager", pass.replay, captured);
    if (pass.replay && !captured) capture_bucket(pass.bucket, {&chunk_of(pass), 1});  // Evicted.
    if (passes[i].forward) {
      const bool counts = replay && !pass.replay && chunk_of(pass).is_first_of_stage;
      if (counts) count_fallback(packs_.reason(pass.microbatch));
      outstanding.begins(pass.slot);
      train_forward(pass);
    } else {
      train_backward(pass);
      outstanding.ends(pass.slot);
    }
  }
  note(outstanding, end - first);
  end_passes(end == packs_.count() ? Sharder::Passes::complete : Sharder::Passes::some);
}

void StepLoop::count_fallback(Unreplayable reason) {
  const Unreplayable counted =
      faulty("fallbacks-counted-as-documents", reason, Unreplayable::documents);
  switch (counted) {
    case Unreplayable::no:
      ++counters_.fallbacks_cut;
      return;
    case Unreplayable::documents:
      ++counters_.fallbacks_documents;
      return;
    case Unreplayable::length:
      ++counters_.fallbacks_length;
      return;
  }
}

void StepLoop::train_forward(const MicrobatchPass& pass) {
  if (chunk_of(pass).is_first_of_stage) loader_.wait_for(pass.microbatch, compute_);
  forward(pass);
  counters_.bytes_planned += offloader(pass).due(slot_in_chunk(pass));
  if (options_.listener == nullptr || !chunk_of(pass).is_last_of_stage) return;
  const bool looks = options_.listener->looks_at_passes();
  options_.listener->forward_done(pass.microbatch,
                                  looks ? activations(pass) : std::vector<NamedTensor>(), true);
}

void StepLoop::train_backward(const MicrobatchPass& pass) {
  if (exchanges(false) && pass.microbatch + 1 == packs_.count()) exchange_and_count();
  backward(pass);
  roll_behind(pass);
  const bool waits = faulty("host-waits-in-every-pass", false, true);
  const bool falls_back = with_graphs(scenario_) && pass.bucket < 0;
  const bool waits_here = faulty("host-waits-in-each-fallback", false, falls_back);
  if (waits || waits_here) compute_.synchronize();
  if (chunk_of(pass).is_first_of_stage) loader_.consumed(pass.microbatch, compute_);
  if (options_.listener != nullptr) report_backward(pass);
}

void StepLoop::report_backward(const MicrobatchPass& pass) {
  StepListener& listener = *options_.listener;
  const std::vector<NamedTensor> left = left_by_backward(pass.slot);
  if (chunks_.size() == 1 && !transfers_)
    return listener.backward_done(pass.microbatch, left, true);
  listener.chunk_backward_done(pass.microbatch, chunk_of(pass), left);
  if (chunk_of(pass).is_first_of_stage) listener.backward_done(pass.microbatch, {}, false);
}

std::vector<Pass> StepLoop::passes_of_iteration() const {
  const int chunks = static_cast<int>(chunks_.size());
  std::vector<Pass> passes = passes_of_step(scenario_, 0, packs_.count(), stage_);
  for (Pass& pass : passes) {
    const int opposite = chunks - 1 - pass.chunk;
    pass.chunk = faulty("iteration-graph-takes-the-last-chunk-first", pass.chunk, opposite);
  }
  return faulty("iteration-graph-takes-one-at-a-time", passes,
                one_forward_one_backward(packs_.count(), 1));
}

void StepLoop::iteration() {
  const std::vector<Pass> passes = passes_of_iteration();
  Outstanding outstanding(model_->slots());
  if (transfers_) transfers_->begin_graph();
  begin_passes(passes);
  quantise_with_passes(Passes::training);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    MicrobatchPass pass = pass_of(passes[i].microbatch, true, false, passes[i].chunk);
    pass.bucket = faulty("iteration-graph-takes-each-bucket", packs_.largest_bucket(), pass.bucket);
    pass.prefetch = prefetch_in(passes, i);
    passes[i].forward ? outstanding.begins(pass.slot) : outstanding.ends(pass.slot);
    passes[i].forward ? forward(pass) : backward(pass);
  }
  note(outstanding, packs_.count());
  end_passes(Sharder::Passes::complete);
  exchange_and_count();
  roll();
  if (sharder_) sharder_->await_gradients();  // A capture must join every stream that it forked.
  if (transfers_) transfers_->end_graph();
  drain_copies();
}

void StepLoop::drain_copies() {
  for (const auto& offloader : offloaders_) offloader->drain();
}

void StepLoop::synchronize() const {
  compute_.synchronize();
  for (const auto& offloader : offloaders_) offloader->synchronize();
}

void StepLoop::join_side_streams() {
  drain_copies();
  if (sharder_) sharder_->drain();
  if (transfers_) transfers_->join();
}

// Counts a step in which `microbatches` microbatches ran or were captured.
void StepLoop::note(const Outstanding& outstanding, int microbatches) {
  counters_.max_outstanding = std::max(counters_.max_outstanding, outstanding.most);
  // Fewer passes leave slots unused, as those of the rest of a step that was interrupted.
  if (microbatches < all_slots_from_) return;
  std::int64_t& live = counters_.slots_live;
  live = live == 0 ? outstanding.most_slots : std::min(live, outstanding.most_slots);
}

std::vector<NamedTensor> StepLoop::activations(const MicrobatchPass& pass) {
  std::vector<NamedTensor> tensors = context(pass).pack.names();
  for (const Chunk& chunk : chunks_) {
    const int slot = chunk.slot_of(pass.microbatch);
    std::vector<NamedTensor>& layers = model_->activations(slot);
    at(offloaders_, chunk.number)->point_to_copies(layers, slot - chunk.first_slot);
    passing_.point_to_copies(layers, slot);
    tensors.insert(tensors.end(), layers.begin(), layers.end());
  }
  std::erase_if(tensors, [](const NamedTensor& one) { return one.of_backward; });
  return tensors;
}

std::vector<NamedTensor> StepLoop::left_by_backward(int slot) {
  std::vector<NamedTensor> tensors = model_->activations(slot);
  std::erase_if(tensors, [](const NamedTensor& one) { return !one.of_backward; });
  return tensors;
}

std::vector<NamedTensor> StepLoop::evaluated_in(const Chunk& chunk, int slot) {
  passing_.point_to_copies(model_->activations(slot), slot);
  std::vector<NamedTensor> tensors =
      at(offloaders_, chunk.number)->without_moved(model_->activations(slot));
  // An evaluation by exponents of earlier steps takes no amax.
  std::erase_if(tensors, [&](const NamedTensor& one) {
    return one.of_backward || (is_delayed() && one.name.ends_with("_amax"));
  });
  return tensors;
}

std::vector<NamedTensor> StepLoop::evaluated(const MicrobatchPass& pass) {
  std::vector<NamedTensor> all;
  for (const Chunk& chunk : chunks_) {
    const int slot = pass.replay ? chunk.first_slot : chunk.slot_of(pass.microbatch);
    const std::vector<NamedTensor> own = evaluated_in(chunk, slot);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// ---- Evaluation ---------------------------------------------------------------------------------

void StepLoop::evaluate(std::int64_t step, const StepData& data) {
  device_.enter_step(step);
  prefetch_weights();
  quantise_ahead(step, Passes::evaluation);
  packs_.load(data, compute_);
  loader_.wait_for_state(compute_);
  ++counters_.evaluations;
  for (int m = 0; m < packs_.count(); ++m) loader_.wait_for(m, compute_);
  const bool graph =
      scenario_.cuda_graph.impl == GraphImpl::full_iteration && replays(step) && packs_.all_fit();
  graph ? evaluate_graph() : evaluation(replays_evaluation(step));
  for (int m = 0; m < packs_.count(); ++m) loader_.consumed(m, compute_);
  loader_.state_consumed(compute_);
}

void StepLoop::evaluation(bool replay) {
  const bool one_bucket = packs_.all_fit() && !replay;
  std::vector<Pass> passes;
  for (int m = 0; m < packs_.count(); ++m) {
    for (const Chunk& chunk : chunks_)
      passes.push_back({.forward = true, .microbatch = m, .chunk = chunk.number});
  }
  begin_passes(passes);
  quantise_with_passes(Passes::evaluation);
  for (const Pass& scheduled : passes) {
    MicrobatchPass pass =
        pass_of(scheduled.microbatch, faulty("evaluation-with-dropout", false, true), replay,
                scheduled.chunk);
    if (one_bucket) pass.bucket = packs_.largest_bucket();
    if (pass.replay) {
      pass.slot = chunk_of(pass).first_slot;  // Where its graphs were captured.
      if (!has_graphs(pass)) capture_bucket(pass.bucket, {&chunk_of(pass), 1});
    }
    forward(pass);
    // A capture of a whole evaluation runs nothing.
    const bool shows = options_.listener != nullptr && device_.recording() < 0;
    if (shows && chunk_of(pass).is_last_of_stage)
      options_.listener->evaluation_pass_done(pass.microbatch, evaluated(pass));
  }
  end_passes(Sharder::Passes::forward);
}

}  // namespace lockstep
