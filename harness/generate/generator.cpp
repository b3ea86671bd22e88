#include "harness/generate/generator.h"

#include <algorithm>
#include <functional>

#include "harness/expect/offload_bytes.h"
#include "harness/generate/held.h"
#include "harness/generate/parts.h"
#include "kernels/core/at.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

bool recomputes(const Scenario& s, Recompute module) {
  return std::find(s.model.recompute.begin(), s.model.recompute.end(), module) !=
         s.model.recompute.end();
}

// The part of a layer of experts that is captured: L17 to L20.
void draw_expert_modules(Choices& c, const Scenario::Model::Moe& m,
                         std::vector<GraphModule>& modules) {
  if (!m.host_sync && c.one_in(2)) {
    modules.push_back(GraphModule::moe);
    return;
  }
  modules.push_back(GraphModule::moe_router);
  const bool static_sizes = (m.pad_to_capacity || !m.capacity_factor) && !m.host_sync;
  if (static_sizes && c.one_in(2)) modules.push_back(GraphModule::moe_preprocess);
}

// L19: sizes that the host reads lie in no graph.
bool reads_sizes(const Scenario::Model& m) { return has_experts(m) && m.moe.host_sync; }

std::vector<GraphModule> draw_modules(Choices& c, const Swarm& swarm,
                                      const Scenario::Model& model) {
  const std::string& pattern = model.pattern;
  const bool dynamic = reads_sizes(model);
  std::vector<GraphModule> modules;
  if (!swarm.late_copies && c.one_in(2) && !dynamic) return modules;  // Whole layers.
  if (pattern.find('*') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::attn);
  if (pattern.find('-') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::mlp);
  if (has_experts(model) && !swarm.late_copies && !c.one_in(3))
    draw_expert_modules(c, model.moe, modules);
  if (pattern.find('M') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::mamba);
  if (modules.empty() && dynamic) modules.push_back(GraphModule::moe_router);
  return modules;
}

// Slots of the microbatches after warm-up, the most that a rank needs of each: their smallest count
// decides which capacities leave something to replay.
std::vector<std::int64_t> slot_counts(const Scenario& s) {
  std::vector<std::int64_t> counts;
  const auto data = open_data(s);
  const std::size_t ranks = s.parallel.data;
  for (std::int64_t step = s.cuda_graph.warmup_steps; step < s.training.steps; ++step) {
    const StepData documents = data->training(step);
    std::int64_t most = 0;
    for (std::size_t first = 0; first < documents.microbatches.size(); first += ranks) {
      std::int64_t slots = 1;
      for (std::size_t r = 0; r < ranks; ++r) {
        slots = std::max(slots, slots_in_use(s.data, documents.microbatches[first + r]));
      }
      if (s.cuda_graph.impl == GraphImpl::partial) counts.push_back(slots);
      most = std::max(most, slots);
    }
    if (s.cuda_graph.impl == GraphImpl::full_iteration) counts.push_back(most);
  }
  return counts;
}

// More above, and perhaps one below, which may be too small for every microbatch.
void draw_buckets(Choices& c, std::vector<std::int64_t>& buckets) {
  do {
    buckets.push_back(buckets.back() + c.between(1, 9));
  } while (buckets.size() < 4 && c.one_in(5));
  if (buckets.front() > 1 && c.one_in(5))
    buckets.insert(buckets.begin(), c.between(1, buckets.front() - 1));
}

// L14: after the first capture, before the last step; and each with a graph to tear down. `counts`:
// of slots_in_use, from the first step that may capture.
void draw_recaptures(Choices& c, const std::vector<std::int64_t>& counts, Scenario& s) {
  const std::int64_t warmup = s.cuda_graph.warmup_steps,
                     largest = std::ranges::max(s.cuda_graph.max_packed_seqs);
  // One graph of a whole step is captured at the first step, from this one on, that fits.
  const auto behind_capture = [&](std::int64_t step) {
    if (s.cuda_graph.impl == GraphImpl::full_iteration) {
      while (step < s.training.steps && at(counts, step - warmup) > largest) ++step;
    }
    return step + 1;
  };
  std::vector<std::int64_t>& list = s.training.recapture_at;
  for (std::int64_t first = behind_capture(warmup); first < s.training.steps && list.size() < 3;) {
    list.push_back(c.between(first, s.training.steps - 1));
    first = behind_capture(list.back());
    if (!c.one_in(3)) return;
  }
}

void draw_graphs(Choices& c, const Swarm& swarm, Scenario& s) {
  Scenario::CudaGraph& g = s.cuda_graph;
  g.impl = c.pick<GraphImpl>({GraphImpl::none, GraphImpl::partial, GraphImpl::partial,
                              GraphImpl::partial, GraphImpl::full_iteration});
  if (swarm.rare != RareSize::none && g.impl == GraphImpl::none && swarm.buckets)
    g.impl = GraphImpl::partial;
  if (reads_sizes(s.model) && g.impl == GraphImpl::full_iteration) g.impl = GraphImpl::partial;
  // L37: several ranks of one process lie in no graph of everything.
  if (s.parallel.data > 1 && swarm.transport == Transport::automatic &&
      g.impl == GraphImpl::full_iteration)
    g.impl = GraphImpl::partial;
  g.warmup_steps = c.between(0, s.training.steps - 1);
  if (g.impl == GraphImpl::none) return;
  if (g.impl == GraphImpl::partial) g.modules = draw_modules(c, swarm, s.model);
  // Around a count that occurs: one below, equal, one above.
  const std::vector<std::int64_t> counts = slot_counts(s);
  const std::int64_t fewest = *std::min_element(counts.begin(), counts.end());
  const std::int64_t around = std::max(fewest, c.pick(counts) + c.between(0, 2) - 1);
  g.max_packed_seqs = {around};
  if (swarm.buckets) {
    if (swarm.rare == RareSize::buckets_at_powers_of_two) {
      g.max_packed_seqs = draw_rare_buckets(c, around, fewest);
    } else {
      draw_buckets(c, g.max_packed_seqs);
    }
    // One that a number of documents would fit if it lost its high bits.
    if (swarm.rare == RareSize::many_documents && g.max_packed_seqs.front() > 255)
      g.max_packed_seqs.insert(g.max_packed_seqs.begin(), c.between(150, 255));
    // One bucket at a time, or a few: a graph of a block counts some 10 to 50 KiB.
    const bool limits = swarm.rare == RareSize::recapture_under_a_limit;
    if (limits || c.one_in(3)) g.graph_memory_limit = c.one_in(3) ? 1 : c.between(1, 64) * 16'384;
  }
  if (swarm.recapture) draw_recaptures(c, counts, s);
}

void draw_recompute(Choices& c, Scenario& s) {
  if (!c.one_in(3)) return;
  const auto has = [&](char symbol) { return s.model.pattern.find(symbol) != std::string::npos; };
  std::vector<Recompute>& modules = s.model.recompute;
  if (c.one_in(2)) modules.push_back(Recompute::layernorm);
  if (has('-') && c.one_in(2)) modules.push_back(Recompute::mlp_act);
  if (has('E') && c.one_in(2)) modules.push_back(Recompute::moe_act);
}

bool offloads(const Scenario& s, OffloadModule module) {
  return std::find(s.offload.modules.begin(), s.offload.modules.end(), module) !=
         s.offload.modules.end();
}

void draw_offload_modules(Choices& c, Scenario& s) {
  for (const OffloadModule module : offloadable_modules(s)) {
    const bool saved = !recomputes(s, Recompute::layernorm) ||
                       offload_row(module).kept != Kept::norm_output;  // L27
    if (!c.one_in(3) && saved) s.offload.modules.push_back(module);
  }
  if (!offloads(s, OffloadModule::core_attn))
    std::erase(s.offload.modules, OffloadModule::attn_proj);  // L25
}

// Experts outside of graphs only: L30.
void draw_delay(Choices& c, const Swarm& swarm, Scenario& s) {
  s.offload.delay_until_cuda_graph = swarm.late_copies || c.one_in(2);
  if (!check_legality(s).empty()) s.offload.delay_until_cuda_graph = false;
}

// L30. A run that is asked for captured copies has to have some.
void draw_captured_copies(Choices& c, Scenario& s) {
  if (!captures_copies(s) || s.offload.pool_slack > 0) return;
  s.offload.captured = c.one_in(2);
  if (offload_demand(s).copies_in_graphs == 0) s.offload.captured = false;
}

// min_bytes may leave nothing to copy, or nothing in a graph.
void offload_something(Scenario& s) {
  if (!with_offload(s)) return;
  const OffloadDemand demand = offload_demand(s);
  if (demand.fixed == 0 && !demand.follows_the_data()) s.offload.min_bytes = 0;
  if (s.offload.captured && offload_demand(s).copies_in_graphs == 0) s.offload.captured = false;
}

void draw_offload(Choices& c, const Swarm& swarm, Scenario& s) {
  const bool graphs = s.cuda_graph.impl != GraphImpl::none;
  // L28
  if ((!swarm.late_copies && !c.one_in(3)) || (graphs && s.cuda_graph.warmup_steps == 0)) return;
  if (s.training.steps < 2) return;  // L31
  const bool full = s.cuda_graph.impl == GraphImpl::full_iteration;
  if (full || c.one_in(3)) s.offload.max_inflight = c.between(0, 4);  // L29
  draw_offload_modules(c, s);
  if (s.offload.modules.empty()) {
    s.offload = {};
    return;
  }
  if (c.one_in(2))
    s.offload.fraction = Ratio{c.pick<std::int64_t>({500'000, 0, 800'000, 333'333, 1})};
  if (c.one_in(4)) s.offload.pool_slack = c.between(1, 3);
  if (c.one_in(5)) s.offload.min_bytes = c.pick<std::int64_t>({2'000, 500, 9'000});
  offload_something(s);
  draw_delay(c, swarm, s);
}

std::vector<std::int64_t> draw_unit_list(Choices& c, std::int64_t blocks) {
  std::vector<std::int64_t> units;
  while (blocks > 0) {
    units.push_back(c.between(1, blocks));
    blocks -= units.back();
  }
  return units;
}

void draw_sharding(Choices& c, Scenario& s) {
  if (s.fsdp.strategy == Sharding::no_shard) return;
  Scenario::Fsdp& f = s.fsdp;
  const std::int64_t blocks = std::ssize(s.blocks());
  f.unit_is_list = c.one_in(3);
  f.unit =
      f.unit_is_list ? draw_unit_list(c, blocks) : std::vector<std::int64_t>{c.between(1, blocks)};
  f.prefetch = c.pick<std::int64_t>({1, 0, 2});
  if (s.cuda_graph.impl != GraphImpl::partial) f.double_buffer = !c.one_in(2);  // L32
  // A few buckets of embedding and head each.
  if (c.one_in(3))
    f.bucket_bytes =
        std::max<std::int64_t>(1, 4 * s.model.hidden * s.model.vocab / c.between(2, 5));
  f.persist_buf_on_alloc_fail = !c.one_in(2);
  if (!check_legality(s).empty()) f.persist_buf_on_alloc_fail = true;  // L33, L34
}

void draw_pressure(Choices& c, Scenario& s) {
  if (c.one_in(4)) s.checker.poison.push_back(Poison::padding);
  if (c.one_in(4)) s.checker.poison.push_back(Poison::staging);
  std::vector<DelayStream> streams{DelayStream::compute, DelayStream::loader};
  if (s.cuda_graph.impl != GraphImpl::none) streams.push_back(DelayStream::graph);
  if (!s.offload.modules.empty() && s.offload.fraction.millionths > 0)
    streams.insert(streams.end(), {DelayStream::d2h, DelayStream::h2d});
  if (s.fsdp.strategy != Sharding::no_shard) {
    streams.insert(streams.end(), {DelayStream::gather, DelayStream::reduce});
  }
  while (s.checker.delays.size() < 3 && c.one_in(4)) {
    // A case has up to some thousand ops on compute or captured: long delays of each would be most
    // of its time on a GPU.
    const DelayStream stream = c.pick(streams);
    const bool busy = stream == DelayStream::compute || stream == DelayStream::graph;
    s.checker.delays.push_back(
        {stream, std::nullopt,
         std::min<std::int64_t>(c.pick<std::int64_t>({2, 8, 30}), busy ? 8 : 30)});
    if (s.parallel.data > 1 && c.one_in(2))
      s.checker.delays.back().rank = c.between(0, s.parallel.data - 1);
  }
}

// What each microbatch after warm-up, or each evaluation, asks of a graph: the most of any rank.
std::vector<GraphNeed> graph_needs(const Scenario& s, bool evaluations) {
  std::vector<GraphNeed> needs;
  const auto data = open_data(s);
  const std::int64_t every = s.training.eval_every;
  for (std::int64_t step = s.cuda_graph.warmup_steps; step < s.training.steps; ++step) {
    if (evaluations && (every == 0 || (step + 1) % every != 0)) continue;
    const StepData documents = evaluations ? data->evaluation(step) : data->training(step);
    const std::int64_t count = std::ssize(documents.microbatches) / s.parallel.data;
    for (std::int64_t m = 0; m < count; ++m) {
      GraphNeed most;
      for (std::int64_t r = 0; r < s.parallel.data; ++r) {
        const Microbatch& one = at(documents.microbatches, m * s.parallel.data + r);
        most = larger(most, need_of(s.data, lengths_of(one)));
      }
      needs.push_back(most);
    }
  }
  return needs;
}

// Around the longest document of a microbatch: one below, equal, one above.
void draw_max_seqlen(Choices& c, Scenario& s) {
  // The steps of recaptures were drawn without a bound, and a graph of a whole step that does not
  // fit leaves nothing to tear down.
  const bool full = s.cuda_graph.impl == GraphImpl::full_iteration;
  if (full && !s.training.recapture_at.empty()) return;
  const std::int64_t longest = c.pick(graph_needs(s, false)).longest + c.between(0, 2) - 1;
  if (longest < 1 || longest >= s.data.pack_length) return;
  s.cuda_graph.max_seqlen = longest;
  if (!check_legality(s).empty()) s.cuda_graph.max_seqlen.reset();  // L23
}

// Whole modules in place of their activations.
void draw_recomputed_modules(Choices& c, Scenario& s) {
  for (const Recompute module :
       {Recompute::core_attn, Recompute::mlp, Recompute::mamba, Recompute::moe}) {
    if (s.model.pattern.find(layer_of(module)) == std::string::npos || !c.one_in(5)) continue;
    const std::vector<Recompute> before = s.model.recompute;
    if (module == Recompute::mlp) std::erase(s.model.recompute, Recompute::mlp_act);
    if (module == Recompute::moe) std::erase(s.model.recompute, Recompute::moe_act);
    s.model.recompute.push_back(module);
    if (!check_legality(s).empty()) s.model.recompute = before;  // L27
  }
}

void draw_capture_passes(Choices& c, Scenario& s) {
  s.cuda_graph.capture_passes = c.one_in(3) ? c.between(1, 3) : 0;
  if (!check_legality(s).empty()) s.cuda_graph.capture_passes = 0;  // L43
}

// Keys that came later, behind all others: what a seed draws of those stays.
void draw_added(Choices& c, Scenario& s) {
  draw_recomputed_modules(c, s);
  if (s.cuda_graph.impl == GraphImpl::none) return;
  if (c.one_in(3)) draw_max_seqlen(c, s);
  if (s.cuda_graph.impl != GraphImpl::partial) return;
  const auto fits = [&](const GraphNeed& need) { return unfit(s, need) == Unfit::no; };
  const bool replays = std::ranges::any_of(graph_needs(s, true), fits);
  if (replays && c.one_in(2)) s.cuda_graph.evaluation = GraphEvaluation::replay;
  draw_captured_copies(c, s);
  draw_capture_passes(c, s);
}

// Between steps; where gradients are sharded also within one, and on other ranks.
void draw_resumes(Choices& c, Scenario& s) {
  const bool shards =
      s.fsdp.strategy == Sharding::optim_grads || s.fsdp.strategy == Sharding::optim_grads_params;
  if (!c.one_in(shards ? 2 : 5)) return;
  const std::int64_t own = s.parallel.data;
  Scenario::Resume one{.step = c.between(0, s.training.steps - 1)};
  const std::int64_t of_a_rank = s.training.microbatches_at(one.step);
  if (shards && !c.one_in(3)) one.microbatch = c.between(0, of_a_rank - 1) * own;
  if (shards && !c.one_in(3)) {
    std::vector<std::int64_t> others;
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      if (ranks != own && divides_microbatches(s, ranks)) others.push_back(ranks);
    }
    if (!others.empty()) one.data = c.pick(others);
    // They go on from where they all can be.
    if (one.data != 0 && one.microbatch % one.data != 0) one.microbatch = 0;
  }
  std::vector<Scenario::Resume>& list = s.training.resume_at;
  list = {one};
  if (one.step + 1 < s.training.steps && c.one_in(3))
    list.push_back({.step = c.between(one.step + 1, s.training.steps - 1)});
  if (!check_legality(s).empty()) list.front().data = 0;
  if (!check_legality(s).empty()) list.clear();
}

// Behind the resumes, so that what a seed draws of those stays.
void draw_shared_memory(Choices& c, Scenario& s) {
  if (s.cuda_graph.impl == GraphImpl::partial) s.cuda_graph.shared_memory = c.one_in(3);
}

// Behind all else, so that a seed draws of that what it did. Nothing changes where the schedule
// would be refused beside what was drawn.
void draw_schedule(Choices& c, Scenario& s) {
  if (!c.one_in(3)) return;
  const Scenario before = s;
  const std::int64_t blocks = std::ssize(s.blocks());
  const bool chunks = blocks > 1 && !c.one_in(5);
  if (chunks) {
    s.parallel.chunks = c.between(2, std::min<std::int64_t>(blocks, 4));
    s.parallel.group = c.between(1, fewest_microbatches(s.training));
  }
  const bool gpipe = !chunks || c.one_in(4);
  s.parallel.schedule = gpipe ? PipelineSchedule::gpipe : PipelineSchedule::interleaved;
  s.training.in_flight = scheduled_depth(s);
  if (!check_legality(s).empty() || !check_built(s).empty()) s = before;
}

// Several stages, with several chunks if these are asked for and have blocks and microbatches.
void cut_into_stages(Choices& c, bool chunks, std::int64_t most, Scenario& s) {
  Scenario::Parallel& p = s.parallel;
  const std::int64_t blocks = std::ssize(s.blocks()), fewest = fewest_microbatches(s.training);
  chunks = chunks && blocks >= 4 && fewest >= 2;
  p.pipeline = c.between(2, chunks ? std::min({most, blocks / 2, fewest}) : most);
  p.chunks = chunks ? c.between(2, std::min<std::int64_t>(blocks / p.pipeline, 3)) : 1;
  p.group = chunks && c.one_in(2) ? c.between(p.pipeline, fewest) : p.pipeline;
  const auto in_turn =
      chunks ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
  p.schedule = c.one_in(3) ? PipelineSchedule::gpipe : in_turn;
  s.training.in_flight = scheduled_depth(s);
  free_ranks_of_delays(s);
}

// Behind the schedule, which it replaces, for the same reason. At most 8 ranks.
void draw_stages(Choices& c, Scenario& s) {
  if (!c.one_in(3)) return;
  const Scenario before = s;
  const std::int64_t blocks = std::ssize(s.blocks());
  const std::int64_t most = std::min({blocks, std::int64_t{4}, 8 / s.parallel.data});
  if (most < 2) return;
  cut_into_stages(c, !c.one_in(3), most, s);
  offload_something(s);  // Each stage has a fraction of its own.
  const auto works = [&] { return check_legality(s).empty() && check_built(s).empty(); };
  if (!works()) s.training.resume_at.clear(), s.cuda_graph.shared_memory = false;
  if (!works()) s = before;
}

// Behind the stages. Bytes around those of one tensor, so that groups end below, at and above them.
void draw_delta(Choices& c, Scenario& s) {
  if (s.parallel.pipeline == 1 || !with_offload(s) || c.one_in(4)) return;
  std::vector<std::int64_t> sizes;
  for (const auto& [piece, bytes] : offload_demand(s).sizes) sizes.push_back(bytes);
  if (sizes.empty()) return;
  s.offload.delta_bytes =
      std::max<std::int64_t>(1, c.pick(sizes) * c.between(1, 2) + c.pick<std::int64_t>({0, 1, -1}));
  if (c.one_in(4)) s.offload.delta_bytes = 1;
  if (!does_what_it_asks(s)) s.offload.delta_bytes = 0;
}

// Graphs of parts, of which none holds the experts.
void leave_experts_out_of_graphs(Scenario& s) {
  std::vector<GraphModule>& modules = s.cuda_graph.modules;
  std::erase(modules, GraphModule::moe);
  if (!modules.empty()) return;
  for (const auto& [symbol, module] : {std::pair('*', GraphModule::attn),
                                       {'-', GraphModule::mlp},
                                       {'E', GraphModule::moe_router},
                                       {'M', GraphModule::mamba}}) {
    if (has_layer(s, symbol)) modules.push_back(module);
  }
  std::ranges::sort(modules);
}

// Graphs of parts, some of which hold the experts and with them the exchange of rows.
void put_experts_into_graphs(Scenario& s) {
  std::vector<GraphModule>& modules = s.cuda_graph.modules;
  std::erase(modules, GraphModule::moe_router);
  std::erase(modules, GraphModule::moe_preprocess);
  if (modules.empty() || holds(modules, GraphModule::moe)) return;
  modules.push_back(GraphModule::moe);
  std::ranges::sort(modules);
}

// Whether the graphs of parts that were drawn may hold an exchange (L17, L37), and are to.
bool wants_captured_exchange(Choices& c, Scenario s) {
  if (s.parallel.transport != Transport::shm && s.parallel.transport != Transport::nccl)
    return false;
  put_experts_into_graphs(s);
  return check_legality(s).empty() && check_built(s).empty() && !c.one_in(3);
}

// Behind the stages, for the same reason. What is not built beside it is left out.
void draw_experts_apart(Choices& c, Scenario& s) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t x = 2; has_layer(s, 'E') && x <= s.parallel.data; ++x) {
    if (s.parallel.data % x == 0 && s.model.moe.experts % x == 0) ranks.push_back(x);
  }
  if (ranks.empty() || c.one_in(4)) return;
  const Scenario before = s;
  s.parallel.expert = c.pick(ranks);
  if (s.cuda_graph.impl == GraphImpl::partial)
    wants_captured_exchange(c, s) ? put_experts_into_graphs(s) : leave_experts_out_of_graphs(s);
  const auto works = [&] { return check_legality(s).empty() && check_built(s).empty(); };
  if (!works()) s.training.resume_at.clear();
  if (!works() || !does_what_it_asks(s)) s = before;
}

// Chunks whose graphs evict each other, with one bucket too.
void draw_limit_of_chunks(Choices& c, Scenario& s) {
  std::int64_t& limit = s.cuda_graph.graph_memory_limit;
  if (s.parallel.chunks == 1 || limit > 0 || !with_partial_graphs(s) || !c.one_in(3)) return;
  limit = c.one_in(3) ? 1 : c.between(1, 32) * 8'192;
  if (!check_legality(s).empty()) limit = 0;  // L43
}

// The features that it needs on. Nothing is drawn where nothing is asked for.
void draw_outside(Choices& c, const Outside& outside, Swarm& s) {
  if (outside.transports()) {
    std::vector<Transport> list;
    if (outside.processes) list.push_back(Transport::shm);
    if (outside.nccl) list.push_back(Transport::nccl);
    s.transport = c.pick(list);
    s.sharding = true;
  }
  if (outside.cudnn && c.one_in(2)) s.cudnn = s.bf16 = s.attention = true;
}

// Settings of one schedule.
void draw_checker(Choices& c, const Swarm& swarm, Scenario::Checker& checker) {
  checker.schedule.seed = draw_seed(c, swarm);
  checker.schedule.kind =
      c.pick<ScheduleKind>({ScheduleKind::random, ScheduleKind::random, ScheduleKind::random,
                            ScheduleKind::random, ScheduleKind::pct, ScheduleKind::program});
  if (checker.schedule.kind == ScheduleKind::pct) checker.schedule.depth = c.between(1, 8);
  checker.hazards = !c.one_in(24);
  if (c.one_in(24)) checker.poison.clear();  // On a GPU; the simulator poisons in any case.
}

}  // namespace

Swarm draw_swarm(Choices& c) {
  Swarm s{};
  const std::uint64_t kinds = c.draw(7);  // Never none of the three.
  s.mlp = kinds == 0 || kinds == 3 || kinds == 4 || kinds == 6;
  s.attention = kinds == 1 || kinds == 3 || kinds == 5 || kinds == 6;
  s.mamba = kinds == 2 || kinds == 4 || kinds == 5 || kinds == 6;
  s.experts = c.one_in(2);
  for (bool* feature :
       {&s.dropout, &s.tied, &s.swiglu, &s.masks, &s.gaps, &s.empties, &s.evaluation, &s.recapture,
        &s.buckets, &s.change, &s.schedules, &s.odd_widths, &s.sharding, &s.bf16}) {
    *feature = c.one_in(3);
  }
  for (bool* feature : {&s.constants, &s.large_seeds, &s.distribution}) *feature = c.one_in(5);
  s.late_copies = s.experts && c.one_in(8);
  s.few_steps = c.one_in(4);
  for (bool* feature :
       {&s.many_steps, &s.many_microbatches, &s.many_ranks, &s.truncation, &s.wide}) {
    *feature = c.one_in(16);
  }
  s.long_packs = c.one_in(24);
  return s;
}

void free_ranks_of_delays(Scenario& s) {
  for (Scenario::Delay& delay : s.checker.delays) {
    const bool on_every_stage =
        delay.stream == DelayStream::compute || delay.stream == DelayStream::loader ||
        delay.stream == DelayStream::gather || delay.stream == DelayStream::reduce;
    if (!on_every_stage) delay.rank.reset();
  }
}

bool captures_what_it_asks(const Scenario& s) {
  if (!with_graphs(s)) return true;
  const auto fits = [&](const GraphNeed& need) { return unfit(s, need) == Unfit::no; };
  // The steps after which there is a graph: those with a microbatch that fits, or all of them.
  const std::vector<GraphNeed> needs = graph_needs(s, false);
  std::vector<bool> captures(static_cast<std::size_t>(s.training.steps), false);
  for (std::int64_t step = s.cuda_graph.warmup_steps, next = 0; step < s.training.steps; ++step) {
    const auto first = needs.begin() + next;
    next += s.training.microbatches_at(step);
    const auto last = needs.begin() + next;
    at(captures, step) = s.cuda_graph.impl == GraphImpl::full_iteration
                             ? std::all_of(first, last, fits)
                             : std::any_of(first, last, fits);
  }
  // Each recapture has one of those since the one before it, and the last one step more.
  std::int64_t since = 0;
  const auto captured_in = [&](std::int64_t from, std::int64_t to) {
    return std::any_of(captures.begin() + from, captures.begin() + to, std::identity());
  };
  for (const std::int64_t step : s.training.recapture_at) {
    if (!captured_in(since, step)) return false;
    since = step;
  }
  if (!captured_in(since, s.training.steps)) return false;
  return s.cuda_graph.evaluation != GraphEvaluation::replay ||
         std::ranges::any_of(graph_needs(s, true), fits);
}

bool does_what_it_asks(const Scenario& s) {
  if (with_offload(s)) {
    const OffloadDemand demand = offload_demand(s);
    if (demand.fixed == 0 && !demand.follows_the_data()) return false;
    if (s.offload.captured && demand.copies_in_graphs == 0) return false;
  }
  return captures_what_it_asks(s);
}

std::optional<Scenario> generate_held(Choices& c, Swarm swarm, const Outside& outside,
                                      const Hold& hold) {
  Scenario s;
  s.name = "random";
  draw_outside(c, outside, swarm);
  s.numerics = {swarm.bf16 ? Numerics::bf16 : Numerics::fp32};
  draw_model(c, swarm, s.model);
  if (!hold(Part::model, s)) return {};
  draw_training(c, swarm, s);
  if (!hold(Part::training, s)) return {};
  draw_data(c, swarm, s);
  if (!hold(Part::data, s)) return {};
  draw_graphs(c, swarm, s);
  if (!hold(Part::graphs, s)) return {};
  draw_checker(c, swarm, s.checker);
  draw_recompute(c, s);
  draw_offload(c, swarm, s);
  if (!hold(Part::offload, s)) return {};
  draw_sharding(c, s);
  if (!hold(Part::sharding, s)) return {};
  draw_pressure(c, s);
  draw_added(c, s);
  if (!hold(Part::pressure, s)) return {};
  draw_resumes(c, s);
  draw_shared_memory(c, s);
  draw_fp8(c, outside.fp8, s);
  offload_something(s);  // Codes have fewer bytes than the inputs that they stand for.
  draw_schedule(c, s);
  draw_stages(c, s);
  draw_experts_apart(c, s);
  draw_delta(c, s);
  draw_limit_of_chunks(c, s);
  if (!hold(Part::resumes, s)) return {};
  return s;
}

Scenario generate_scenario(Choices& c, RareSize rare, const Outside& outside) {
  Swarm swarm = draw_swarm(c);
  if (rare != RareSize::none) restrict_to(rare, swarm);
  return *generate_held(c, swarm, outside, [](Part, Scenario&) { return true; });
}

}  // namespace lockstep
