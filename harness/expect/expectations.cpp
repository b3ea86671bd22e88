#include "harness/expect/expectations.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/memory/memory_plan.h"
#include "harness/expect/graph_memory.h"
#include "harness/expect/launches.h"
#include "harness/expect/offload_bytes.h"
#include "harness/expect/recomputed_ops.h"
#include "harness/expect/sharding_plan.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

bool holds_part(const std::vector<GraphModule>& modules, char symbol) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](GraphModule module) { return layer_of(module) == symbol; });
}

bool fits_a_bucket(const Scenario& scenario, const Microbatch& microbatch) {
  return unfit(scenario, need_of(scenario.data, lengths_of(microbatch))) == Unfit::no;
}

std::int64_t layers_of_experts(const Scenario& scenario) {
  return std::count(scenario.model.pattern.begin(), scenario.model.pattern.end(), 'E');
}

// Every token of a document goes to top_k experts in each layer of experts, before any is dropped.
std::int64_t pairs_of(const Scenario& scenario, const StepData& step) {
  return tokens_of(step) * scenario.model.moe.top_k * layers_of_experts(scenario);
}

Expectation exactly(Counter counter, std::int64_t value, std::string why) {
  return {counter, value, value, std::move(why)};
}

// Totals of all steps.
struct Totals {
  Launches training;
  std::int64_t evaluations = 0, evaluation_replays = 0;
  std::int64_t microbatches = 0;  // Over all ranks, of training.
  std::int64_t evaluated = 0;     // Likewise of evaluations.
  std::int64_t pairs = 0;
  std::int64_t collectives = 0, in_graphs = 0;  // For a rank.
  std::int64_t host_waits = 0, rows_read = 0;   // Over all ranks.
  bool grows = false;                           // Some documents fit no bucket.
};

// Counts the waits of a step or an evaluation, on all ranks. The host waits until staging memory is
// free, of each microbatch and of the step's numbers, and for the results; with host_sync for the
// rows of each layer of experts too. Any other wait would hold the host back in every step.
// Documents that fit no bucket may want larger memory, and that is waited for.
void count_waits(const Scenario& scenario, const StepData& step, Totals& sum) {
  const std::int64_t count = std::ssize(step.microbatches);
  const std::int64_t reads = scenario.model.moe.host_sync ? count * layers_of_experts(scenario) : 0;
  sum.rows_read += reads;
  const std::int64_t stages = scenario.parallel.pipeline;  // Each loads the documents.
  sum.host_waits += stages * (count + 2 * scenario.parallel.data) + reads;
  sum.grows |= !std::all_of(step.microbatches.begin(), step.microbatches.end(),
                            [&](const auto& one) { return fits_a_bucket(scenario, one); });
}

// How often each process waits until it is connected: to other stages, to the ranks that share its
// experts, and to those that have the same.
int connections_of(const Scenario& scenario) {
  if (scenario.parallel.transport != Transport::nccl) return 0;
  const bool apart = expert_ranks(scenario) > 1;
  return (scenario.parallel.pipeline > 1) + apart + (apart && expert_replicas(scenario) > 1);
}

std::int64_t replayed_passes(std::int64_t replays, std::int64_t regions) {
  return regions == 0 ? 0 : replays / regions;
}

Totals totals_of(const Scenario& scenario, const DataSource& data, const ShardingPlan& plan,
                 std::int64_t regions) {
  const Scenario::Training& training = scenario.training;
  const bool full = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  const std::int64_t stages = scenario.parallel.pipeline;
  Totals sum;
  sum.collectives = collectives_at_start(scenario, plan);
  sum.host_waits += ranks_of_run(scenario) * connections_of(scenario);
  for (std::int64_t step = 0; step < training.steps; ++step) {
    const std::int64_t microbatches = training.microbatches_at(step);
    const StepData documents = data.training(step);
    sum.pairs += pairs_of(scenario, documents);
    const bool warm = step >= scenario.cuda_graph.warmup_steps && with_graphs(scenario);
    sum.microbatches += microbatches * scenario.parallel.data;
    count_waits(scenario, documents, sum);
    sum.collectives += collectives_of_step(scenario, plan, microbatches);
    if (warm) {
      const Launches more = launches_of(scenario, regions, documents);
      sum.training += more;
      sum.in_graphs +=
          full ? more.replays / stages * collectives_of_passes(scenario, plan, microbatches)
               : replayed_passes(more.replays, regions) / 2 * exchanges_in_regions(scenario, true);
    }
    if (training.eval_every == 0 || (step + 1) % training.eval_every != 0) continue;
    ++sum.evaluations;
    const StepData evaluated = data.evaluation(step);
    count_waits(scenario, evaluated, sum);
    sum.evaluated += std::ssize(evaluated.microbatches);
    const std::int64_t held_out = std::ssize(evaluated.microbatches) / scenario.parallel.data;
    sum.collectives += collectives_of_evaluation(scenario, plan, held_out);
    if (!warm) continue;
    const std::int64_t more = evaluation_replays(scenario, regions, evaluated);
    sum.evaluation_replays += more;
    sum.in_graphs += full ? more / stages * collectives_of_forward_passes(scenario, plan, held_out)
                          : replayed_passes(more, regions) * exchanges_in_regions(scenario, false);
  }
  return sum;
}

// Documents of the right lengths, whose tokens are not drawn and which have no targets: counting
// asks for no more, and drawing would take most of its time.
class UndrawnSource : public DataSource {
 public:
  explicit UndrawnSource(const Scenario& scenario) : scenario_(scenario) {}

  StepData training(std::int64_t step) const override {
    StepData data;
    const std::int64_t count = global_microbatches(scenario_, step);
    data.microbatches.resize(static_cast<std::size_t>(count));
    for (std::int64_t m = 0; m < count; ++m) {
      std::vector<Document>& documents = data.microbatches[static_cast<std::size_t>(m)].documents;
      for (const std::int64_t length : microbatch_lengths(scenario_, step, m))
        documents.emplace_back().tokens.resize(static_cast<std::size_t>(length));
    }
    return data;
  }
  StepData evaluation(std::int64_t step) const override { return training(step); }
  double unigram_entropy() const override { return 0; }

 private:
  const Scenario& scenario_;
};

// As many as any microbatch has, or about as many where they are drawn, since all are drawn alike.
// Bytes at a path are looked at one by one, so each row counts.
std::int64_t documents_of_a_microbatch(const Scenario& scenario) {
  if (reads_bytes(scenario.data)) return scenario.data.pack_length;
  if (scenario.data.kind == DataKind::distribution)
    return std::ssize(microbatch_lengths(scenario, 0, 0));
  std::int64_t most = 0;
  for (const auto& step : scenario.data.documents) {
    for (const auto& one : step) most = std::max(most, std::ssize(one));
  }
  return most;
}

// Without a limit nothing is captured twice but where the scenario says so; with one the sizes of
// graphs decide. `collectives`: those of all else.
void add_captures(const Scenario& scenario, const DataSource& data, const ShardingPlan& plan,
                  std::int64_t collectives, std::vector<Expectation>& list) {
  std::int64_t captured = 0, passed = 0;
  for (std::int64_t stage = 0; stage < scenario.parallel.pipeline; ++stage) {
    const GraphTally tally = tally_graphs(scenario, data, {}, stage);
    captured += tally.captured;
    passed += passes_of_captures(scenario, tally.buckets, stage);
    collectives += tally.buckets * collectives_of_capture(scenario, plan, stage);
  }
  Expectation all = exactly(Counter::graphs_captured, captured,
                            "every region, both directions, every slot and bucket");
  Expectation evicted{
      .counter = Counter::graphs_evicted, .max = 0, .why = "cuda_graph.graph_memory_limit"};
  Expectation passes = exactly(Counter::capture_passes, passed,
                               "cuda_graph.capture_passes of every region, slot and bucket");
  Expectation calls =
      exactly(Counter::collectives, collectives,
              "fsdp.strategy, its units and buckets, microbatches, and passes of captures");
  if (scenario.cuda_graph.graph_memory_limit > 0) {
    all.max = evicted.max = std::numeric_limits<std::int64_t>::max();
    if (passes.min > 0) passes.max = calls.max = all.max;
  }
  list.insert(list.end(), {all, evicted, passes, calls});
}

void add_graphs(const Scenario& scenario, const Totals& totals, std::int64_t regions,
                std::vector<Expectation>& list) {
  const std::int64_t stages = scenario.parallel.pipeline;
  const std::int64_t replays = totals.training.replays,
                     too_many = stages * totals.training.too_many,
                     too_long = stages * totals.training.too_long,
                     cut = stages * totals.training.cut;
  list.push_back(exactly(Counter::graph_replays, replays + totals.evaluation_replays,
                         std::to_string(regions) + " regions, warm-up of " +
                             std::to_string(scenario.cuda_graph.warmup_steps) +
                             " steps, documents that fit the largest bucket"));
  list.insert(
      list.end(),
      {exactly(Counter::eager_fallbacks, too_many + too_long,
               "documents that exceed the largest bucket, or max_seqlen"),
       exactly(Counter::fallbacks_documents, too_many, "more documents than the largest bucket"),
       exactly(Counter::fallbacks_length, too_long, "documents longer than max_seqlen"),
       exactly(Counter::fallbacks_cut, cut, "every step runs whole"),
       exactly(Counter::evaluation_replays, totals.evaluation_replays,
               "evaluations after warm-up whose documents fit")});
  if (scenario.cuda_graph.evaluation == GraphEvaluation::replay && totals.evaluation_replays == 0)
    list.push_back({.counter = Counter::evaluation_replays,
                    .min = 1,
                    .why = "the scenario asks for evaluations by graphs"});
  // The graphs that a scenario asks for are those of training; an evaluation that fits is no
  // substitute.
  if (replays == 0 && regions > 0 && !allows_no_replay(scenario)) {
    list.push_back({.counter = Counter::graph_replays,
                    .min = totals.evaluation_replays + 1,
                    .why = "the scenario asks for graphs"});
  }
  // A graph of a whole iteration is captured when a step fits: a recapture with none since the last
  // is no recapture.
  list.push_back(exactly(Counter::recaptures,
                         stages_with_regions(scenario) * std::ssize(scenario.training.recapture_at),
                         "training.recapture_at, each with graphs to tear down"));
}

// All bytes that leave come back, and they are as many as the scenario says; where rows follow the
// data, that much and what the oracle adds.
void add_offload(const Scenario& scenario, std::int64_t microbatches,
                 std::vector<Expectation>& list) {
  const OffloadDemand demand = offload_demand(scenario);
  for (const Counter counter :
       {Counter::bytes_planned, Counter::bytes_offloaded, Counter::bytes_reloaded}) {
    Expectation one = exactly(counter, demand.fixed * microbatches,
                              "offload.modules, fraction, min_bytes and delta_bytes");
    if (demand.follows_the_data()) one.max = std::numeric_limits<std::int64_t>::max();
    list.push_back(one);
    // A fraction of 0 asks for nothing; any other asks for something.
    const bool asked =
        !scenario.offload.modules.empty() && scenario.offload.fraction.millionths > 0;
    if (asked)
      list.push_back({.counter = counter, .min = 1, .why = "the scenario asks for offloading"});
  }
  const Scenario::Offload& offload = scenario.offload;
  if (offload.max_inflight)
    list.push_back({.counter = Counter::offloads_in_flight,
                    .max = *offload.max_inflight,
                    .why = "offload.max_inflight"});
  list.push_back(exactly(Counter::offloads_delayed,
                         offload.delay_until_cuda_graph ? demand.of_experts * microbatches : 0,
                         "groups of offload.delay_until_cuda_graph"));
  list.push_back(exactly(Counter::spare_buffers, offload.pool_slack * std::ssize(demand.sizes),
                         "offload.pool_slack"));
}

// Copies run as nodes where a microbatch is replayed. A scenario that asks for them has some.
void add_captured_copies(const Scenario& scenario, std::int64_t replayed,
                         std::vector<Expectation>& list) {
  const OffloadDemand demand = offload_demand(scenario);
  const std::int64_t microbatches = replayed * scenario.parallel.data;
  const std::string why = "offload.captured, copies of each microbatch that is replayed";
  for (const auto& [counter, each] : {std::pair(Counter::copies_in_graphs, demand.copies_in_graphs),
                                      {Counter::copy_bytes_in_graphs, demand.bytes_in_graphs}}) {
    list.push_back(exactly(counter, each * microbatches, why));
    if (scenario.offload.captured && !allows_no_replay(scenario))
      list.push_back(
          {.counter = counter, .min = 1, .why = "the scenario asks for captured copies"});
  }
}

// A gather that is prefetched is never late. A graph of a whole iteration shows no gather to the
// host.
void add_prefetch(const Scenario& scenario, std::vector<Expectation>& list) {
  if (scenario.fsdp.strategy != Sharding::optim_grads_params) return;
  Expectation late{.counter = Counter::late_gathers, .why = "fsdp.prefetch"};
  if (scenario.fsdp.prefetch > 0) late.max = 0;
  if (scenario.fsdp.prefetch == 0 && scenario.cuda_graph.impl != GraphImpl::full_iteration)
    late.min = 1;
  list.push_back(late);
}

// The products of a layer that multiply codes (arithmetic.md 5.1): those whose input is saved in
// fp8, those that save or compute again the input itself, and products that are computed again.
struct Fp8Products {
  std::int64_t all = 0, again = 0, recomputed = 0;
};
Fp8Products fp8_products(const Scenario& scenario) {
  using enum Fp8Layer;
  const std::map<char, std::vector<Fp8Layer>> of_symbol{
      {'*', {qkv_linear, attn_proj}},
      {'-', {mlp_fc1, mlp_fc2}},
      {'M', {mamba_in_proj, mamba_out_proj}},
      {'E', {expert_fc1, expert_fc2, shared_fc1, shared_fc2}}};
  Fp8Products sum;
  for (const char symbol : scenario.model.pattern) {
    for (const Fp8Layer layer : of_symbol.at(symbol)) {
      if (!has_fp8_layer(scenario.model, layer)) continue;
      ++sum.all;
      sum.again += holds(scenario.fp8.save_original_input, layer);
    }
    sum.recomputed += symbol == '-' && holds(scenario.model.recompute, Recompute::mlp);
    sum.recomputed += symbol == 'M' && holds(scenario.model.recompute, Recompute::mamba);
    if (symbol == 'E' && holds(scenario.model.recompute, Recompute::moe))
      sum.recomputed += scenario.model.moe.shared_hidden > 0 ? 3 : 2;
  }
  return sum;
}

void add_fp8(const Scenario& scenario, const Totals& totals, std::vector<Expectation>& list) {
  if (!multiplies_fp8(scenario)) return;
  const auto [all, again, recomputed] = fp8_products(scenario);
  list.push_back(exactly(
      Counter::fp8_products, (3 * all + recomputed) * totals.microbatches + all * totals.evaluated,
      "three of each layer in a microbatch, one in an evaluation, and those computed again"));
  list.push_back(exactly(
      Counter::fp8_casts, (2 * all + again) * totals.microbatches + all * totals.evaluated,
      "X and dY of each layer in a microbatch, X again as fp8.save_original_input says, and "
      "X in an evaluation"));
  list.push_back(exactly(Counter::amax_exchanges, amax_exchanges(scenario),
                         "fp8.recipe delayed of several ranks or beside shards, fp8.param_gather"));
  if (!scenario.fp8.weight_cache) {
    list.push_back(exactly(Counter::weight_casts,
                           all * (2 * totals.microbatches + totals.evaluated),
                           "each weight in every pass, without fp8.weight_cache"));
    return;
  }
  if (gathers_fp8_codes(scenario)) {
    list.push_back(exactly(Counter::weight_casts,
                           all * (1 + scenario.training.steps) * scenario.parallel.data,
                           "each weight at the start and behind each update"));
    return;
  }
  const std::int64_t times = scenario.training.steps + totals.evaluations;
  list.push_back(exactly(Counter::weight_casts, all * times * scenario.parallel.data,
                         "each weight in a step and in an evaluation"));
}

// Counters of the layers of experts; how many pairs are dropped is for the oracle to say.
void add_routing(const Scenario& scenario, std::int64_t pairs, std::vector<Expectation>& list) {
  const std::int64_t layers = layers_of_experts(scenario);
  if (layers == 0) return;
  list.push_back(exactly(Counter::pairs_routed, pairs, "tokens x top_k x layers of experts"));
  const Scenario::Model::Moe& moe = scenario.model.moe;
  list.push_back({.counter = Counter::experts_used,
                  .min = pairs > 0 ? moe.top_k * layers : 0,
                  .max = moe.experts * layers * scenario.parallel.data,
                  .why = "a token goes to top_k experts in each layer"});
  if (!moe.capacity_factor) list.push_back(exactly(Counter::tokens_dropped, 0, "dropless"));
}

void add_waits(const Totals& totals, std::vector<Expectation>& list) {
  list.push_back(exactly(Counter::expert_rows_read, totals.rows_read, "model.moe.host_sync"));
  // Waits that are missing are for the checker to find.
  Expectation one{.counter = Counter::host_syncs,
                  .why = "one a microbatch, two a step, and those of model.moe.host_sync"};
  if (!totals.grows) one.max = totals.host_waits;
  list.push_back(one);
}

}  // namespace

Fallbacks expected_fallbacks(const Scenario& scenario) {
  const auto data = open_data(scenario);
  const bool full = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  Fallbacks sum;
  for (std::int64_t step = scenario.cuda_graph.warmup_steps; step < scenario.training.steps;
       ++step) {
    const Launches one = launches_of(scenario, 1, data->training(step));
    sum.decisions += full ? 1 : scenario.training.microbatches_at(step);
    sum.documents += one.too_many;
    sum.length += one.too_long;
  }
  return sum;
}

std::string range_text(std::int64_t min, std::int64_t max) {
  if (min == max) return std::to_string(min);
  if (max == std::numeric_limits<std::int64_t>::max()) return "at least " + std::to_string(min);
  return std::to_string(min) + " to " + std::to_string(max);
}

std::vector<int> captured_symbols(const Scenario& scenario, const Scenario::Block& block) {
  std::vector<int> list;
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  for (int i = block.first; i < block.first + block.count; ++i) {
    const bool whole = graph.impl == GraphImpl::full_iteration || graph.modules.empty();
    if (graph.impl != GraphImpl::none &&
        (whole || holds_part(graph.modules, scenario.model.pattern[i]))) {
      list.push_back(i);
    }
  }
  return list;
}

std::int64_t graph_regions(const Scenario& scenario) {
  if (scenario.cuda_graph.impl == GraphImpl::full_iteration) return 1;
  std::int64_t regions = 0;
  for (const Scenario::Block& block : scenario.blocks())
    regions += !captured_symbols(scenario, block).empty();
  return regions;
}

std::int64_t slots_of_regions(const Scenario& scenario, std::optional<std::int64_t> stage) {
  if (scenario.cuda_graph.impl == GraphImpl::full_iteration) return chunk_slots(scenario).front();
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::int64_t sum = 0, block = 0, piece = 0;
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    const bool counts = !stage || piece % scenario.parallel.pipeline == *stage;
    const std::int64_t own = counts ? slots_of_piece(scenario, piece) : 0;
    ++piece;
    for (const std::int64_t end = block + count; block < end; ++block)
      sum += captured_symbols(scenario, at(blocks, block)).empty() ? 0 : own;
  }
  return sum;
}

std::int64_t most_outstanding(const Scenario& scenario) {
  const Scenario::Parallel& parallel = scenario.parallel;
  if (!depth_follows(scenario)) return scenario.training.in_flight;
  const std::int64_t all = parallel.chunks * most_microbatches(scenario.training);
  if (parallel.schedule == PipelineSchedule::gpipe) return all;
  // The first stage waits longest for the first gradient.
  const std::int64_t later = parallel.pipeline - 1;
  const std::int64_t ahead = parallel.schedule == PipelineSchedule::interleaved
                                 ? 2 * later + (parallel.chunks - 1) * parallel.group
                                 : later;
  return std::min(all, ahead + 1);
}

std::int64_t stages_with_regions(const Scenario& scenario) {
  if (scenario.parallel.pipeline == 1) return 1;
  const std::vector<std::int64_t> stages = stages_of_layers(scenario);
  std::set<std::int64_t> with;
  for (const Scenario::Block& block : scenario.blocks()) {
    for (const int layer : captured_symbols(scenario, block)) with.insert(at(stages, layer));
  }
  return std::ssize(with);
}

std::int64_t passes_of_captures(const Scenario& scenario, std::int64_t buckets,
                                std::int64_t stage) {
  return 2 * scenario.cuda_graph.capture_passes * slots_of_regions(scenario, stage) * buckets;
}

bool can_be_counted_at_once(const Scenario& scenario) {
  // Documents and rows of a step lie in memory at once.
  constexpr std::int64_t kMostDocuments = 1'000'000, kMostRows = 8'000'000;
  // In units of a document, which costs about 0.3 us a pass.
  constexpr std::int64_t kMostToCount = 2'000'000;
  const std::int64_t of_a_step = most_microbatches(scenario.training) * scenario.parallel.data;
  const std::int64_t rows = scenario.data.pack_length;
  const std::int64_t documents = documents_of_a_microbatch(scenario);
  const std::int64_t of_a_microbatch = 4 + documents + rows / 512;
  return of_a_step * documents <= kMostDocuments && of_a_step * rows <= kMostRows &&
         scenario.training.steps * of_a_step * of_a_microbatch * std::ssize(scenario.numerics) <=
             kMostToCount;
}

// Where the plan of a stage lets its chunks share with each other, more than they share apart.
static Expectation shared_bytes(const Scenario& scenario) {
  std::int64_t least = 0;
  for (int stage = 0; stage < scenario.parallel.pipeline; ++stage) {
    const MemoryPlan plan = plan_memory(scenario, stage);
    const bool meet = plan.bytes < plan.apart_bytes;
    least += meet ? std::max<std::int64_t>(0, plan.tensor_bytes - plan.apart_bytes) + 1 : 1;
  }
  return {.counter = Counter::bytes_shared,
          .min = least,
          .why =
              "cuda_graph.shared_memory: gradients are never alive together with what a forward "
              "pass alone needs, and not all that chunks need at most is needed at once"};
}

std::vector<Expectation> expectations(const Scenario& scenario, const DataSource& data) {
  const ShardingPlan plan = plan_sharding(scenario);
  const std::int64_t regions = graph_regions(scenario);
  const Totals totals = totals_of(scenario, data, plan, regions);
  std::vector<Expectation> list;
  add_graphs(scenario, totals, regions, list);
  add_captures(scenario, data, plan, totals.collectives, list);
  const std::int64_t outstanding = most_outstanding(scenario);
  list.push_back(
      exactly(Counter::max_outstanding, outstanding,
              depth_follows(scenario) ? "parallel.schedule, of all chunks" : "training.in_flight"));
  list.push_back(
      exactly(Counter::slots_live, outstanding, "a slot for each of those, in every step"));
  list.push_back(exactly(Counter::evaluations, scenario.parallel.pipeline * totals.evaluations,
                         "training.eval_every, on each stage"));
  list.push_back(exactly(Counter::collectives_in_graphs, totals.in_graphs,
                         "what the passes of a replayed step exchange"));
  list.push_back(exactly(Counter::persistent_buffers, std::ssize(plan.persistent),
                         "units outside of the pool's class"));
  add_offload(scenario, totals.microbatches, list);
  const bool partial = with_partial_graphs(scenario) && regions > 0;
  add_captured_copies(scenario, partial ? totals.training.replays / (2 * regions) : 0, list);
  add_prefetch(scenario, list);
  list.push_back(exactly(Counter::ops_recomputed, recomputed_ops(scenario) * totals.microbatches,
                         "model.recompute"));
  const auto layers = std::count(scenario.model.pattern.begin(), scenario.model.pattern.end(), '*');
  const bool by_cudnn = scenario.model.core_attention == CoreAttention::cudnn;
  list.push_back(exactly(Counter::attention_by_cudnn, by_cudnn ? layers * totals.microbatches : 0,
                         "model.core_attention"));
  add_fp8(scenario, totals, list);
  add_routing(scenario, totals.pairs, list);
  add_waits(totals, list);
  const std::int64_t resumes = std::ssize(scenario.training.resume_at);
  if (scenario.cuda_graph.shared_memory) list.push_back(shared_bytes(scenario));
  if (resumes > 0) list.push_back(exactly(Counter::resumes, resumes, "training.resume_at"));
  list.push_back({.counter = Counter::ops, .min = 1, .why = "a run without an op proves nothing"});
  return list;
}

std::vector<PrecisionExpectations> expectations_by_precision(const Scenario& scenario) {
  const auto data =
      reads_bytes(scenario.data) ? open_data(scenario) : std::make_unique<UndrawnSource>(scenario);
  std::vector<PrecisionExpectations> all;
  for (const Numerics numerics : scenario.numerics) {
    Scenario narrowed = scenario;
    narrowed.numerics = {numerics};
    all.push_back({numerics, expectations(narrowed, *data)});
  }
  return all;
}

std::string unmet(const std::vector<Expectation>& expected, const Counters& counters) {
  for (const Expectation& one : expected) {
    const auto found = counters.find(one.counter);
    if (found == counters.end()) return "the engine does not count " + to_text(one.counter);
    if (found->second < one.min || found->second > one.max) {
      return to_text(one.counter) + " is " + std::to_string(found->second) + ", expected " +
             range_text(one.min, one.max) + " (" + one.why + ")";
    }
  }
  return "";
}

std::string unmet(const std::map<Counter, Scenario::CounterRule, ByName>& rules,
                  const Counters& counters) {
  std::string all;
  for (const auto& [counter, rule] : rules) {
    const auto found = counters.find(counter);
    if (found == counters.end()) return "the engine does not count " + to_text(counter);
    const std::int64_t value = found->second;
    std::int64_t min = rule.min.value_or(std::numeric_limits<std::int64_t>::min());
    std::int64_t max = rule.max.value_or(std::numeric_limits<std::int64_t>::max());
    if (rule.same_as) {
      const auto other = counters.find(*rule.same_as);
      if (other == counters.end()) return "the engine does not count " + to_text(*rule.same_as);
      min = max = other->second;
    }
    if (value >= min && value <= max) continue;
    const std::string wanted = rule.same_as ? to_text(*rule.same_as) + ", " : "";
    const std::string low = min == std::numeric_limits<std::int64_t>::min()
                                ? "at most " + std::to_string(max)
                                : range_text(min, max);
    all += (all.empty() ? "" : "; ") + to_text(counter) + " is " + std::to_string(value) +
           ", the file expects " + wanted + low;
  }
  return all;
}

}  // namespace lockstep
