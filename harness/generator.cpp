#include "harness/generator.h"

#include <algorithm>

#include "harness/offload_bytes.h"
#include "scenarios/documents.h"
#include "scenarios/offload_modules.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

// The features a case may use; drawn once, so that a case has few or many of them, not always some of each.
struct Swarm {
  bool mamba, attention, mlp, experts;
  bool dropout, tied, swiglu, masks, gaps, empties, evaluation, recapture, buckets, change, schedules, odd_widths,
      sharding, bf16;
  bool late_copies;  // Several layers of experts outside of graphs, whose copies wait for the next graph together.
};

Swarm draw_swarm(Choices& c) {
  Swarm s;
  const std::uint64_t kinds = c.draw(7);  // Never none of the three.
  s.mlp = kinds == 0 || kinds == 3 || kinds == 4 || kinds == 6;
  s.attention = kinds == 1 || kinds == 3 || kinds == 5 || kinds == 6;
  s.mamba = kinds == 2 || kinds == 4 || kinds == 5 || kinds == 6;
  s.experts = c.one_in(2);
  for (bool* feature : {&s.dropout, &s.tied, &s.swiglu, &s.masks, &s.gaps, &s.empties, &s.evaluation, &s.recapture,
                        &s.buckets, &s.change, &s.schedules, &s.odd_widths, &s.sharding, &s.bf16}) {
    *feature = c.one_in(3);
  }
  s.late_copies = s.experts && c.one_in(8);
  return s;
}

std::string draw_pattern(Choices& c, const Swarm& swarm) {
  std::vector<char> symbols;
  if (swarm.mlp) symbols.push_back('-');
  if (swarm.attention) symbols.push_back('*');
  if (swarm.mamba) symbols.push_back('M');
  if (swarm.experts) symbols.push_back('E');
  std::string pattern(symbols.begin(), symbols.end());  // Each kind once,
  const auto insert = [&](std::size_t count, char symbol) {
    pattern.insert(static_cast<std::size_t>(c.draw(pattern.size() + 1)), count, symbol);
  };
  if (swarm.late_copies) insert(2, 'E');
  while (pattern.size() < 6 && c.one_in(3)) insert(1, c.pick(symbols));  // then some more of them anywhere.
  return pattern;
}

bool recomputes(const Scenario& s, Recompute module) {
  return std::find(s.model.recompute.begin(), s.model.recompute.end(), module) != s.model.recompute.end();
}
bool drops_and_pads(const Scenario::Model& m) { return m.moe.capacity_factor && m.moe.pad_to_capacity; }
bool has_experts(const Scenario::Model& m) { return m.pattern.find('E') != std::string::npos; }

void draw_experts(Choices& c, Scenario::Model::Moe& m) {
  m.experts = c.pick<std::int64_t>({4, 2, 3, 7, 16, 130});
  m.top_k = std::min(m.experts, c.pick<std::int64_t>({2, 1, 3, 5}));
  m.hidden = c.pick<std::int64_t>({8, 1, 5, 24});
  if (m.experts > 16) m.hidden = std::min<std::int64_t>(m.hidden, 8);  // Many and wide would be most of the weights.
  m.shared_hidden = c.one_in(3) ? c.pick<std::int64_t>({8, 1, 17}) : 0;
  m.router = c.one_in(2) ? Router::sigmoid : Router::softmax;
  m.expert_bias = m.router == Router::sigmoid && c.one_in(2);
  m.aux_loss = Ratio{c.pick<std::int64_t>({0, 10'000, 1'000'000})};
  m.z_loss = Ratio{c.pick<std::int64_t>({0, 1'000, 1'000'000})};
  m.capacity_factor = Ratio{c.pick<std::int64_t>({2'000'000, 1'000'000, 1'250'000, 300'000, 1})};
  if (c.one_in(3)) m.capacity_factor.reset();
  m.pad_to_capacity = m.capacity_factor && !c.one_in(3);
  m.host_sync = !m.pad_to_capacity && c.one_in(3);
}

void up_to(std::int64_t& width, std::int64_t step) { width = (width + step - 1) / step * step; }

// Rows of bf16 are whole 16-byte reads and its products take 16 terms at a time (rule L03).
void widen_for_bf16(Scenario::Model& m) {
  const std::int64_t mamba_heads = m.mamba.d_inner / m.mamba.head_dim;
  for (std::int64_t* width : {&m.attention.head_dim, &m.mamba.head_dim, &m.mamba.state, &m.mamba.chunk}) {
    up_to(*width, 16);
  }
  m.mamba.d_inner = mamba_heads * m.mamba.head_dim;
  for (std::int64_t* width : {&m.hidden, &m.vocab, &m.mlp.hidden, &m.moe.hidden, &m.moe.shared_hidden}) {
    up_to(*width, 8);
  }
}

void draw_model(Choices& c, const Swarm& swarm, Scenario::Model& m) {
  m.pattern = draw_pattern(c, swarm);
  m.hidden = c.pick<std::int64_t>({16, 8, 32, 48, 136});
  m.vocab = c.pick<std::int64_t>({16, 8, 64, 130, 1030});
  if (swarm.odd_widths) {
    m.hidden += c.between(0, 3);
    m.vocab += c.between(0, 3);
  }
  m.tied_embedding = swarm.tied;
  if (swarm.dropout) m.dropout = Ratio{c.pick<std::int64_t>({500'000, 100'000, 900'000})};
  m.attention.kv_heads = c.between(1, 2);
  m.attention.heads = m.attention.kv_heads * c.between(1, 3);
  m.attention.head_dim = c.pick<std::int64_t>({4, 2, 6, 16, 34});
  m.mamba.groups = c.between(1, 2);
  m.mamba.head_dim = c.pick<std::int64_t>({4, 1, 3, 8, 16});
  m.mamba.d_inner = m.mamba.head_dim * m.mamba.groups * c.between(1, 3);
  m.mamba.state = c.pick<std::int64_t>({4, 1, 5, 16});
  m.mamba.conv_width = c.between(1, 5);
  m.mamba.chunk = c.pick<std::int64_t>({4, 1, 3, 16, 64});
  m.mlp.hidden = c.pick<std::int64_t>({8, 1, 24, 130});
  m.mlp.activation = swarm.swiglu ? MlpActivation::swiglu : MlpActivation::squared_relu;
  if (has_experts(m)) draw_experts(c, m.moe);
  if (swarm.bf16) widen_for_bf16(m);
}

std::int64_t draw_length(Choices& c, const Scenario& s, bool empties, std::int64_t room) {
  const Scenario::Model::Mamba& m = s.model.mamba;
  std::vector<std::int64_t> edges{1,           2,       m.conv_width - 1, m.conv_width,    m.conv_width + 1,
                                  m.chunk - 1, m.chunk, m.chunk + 1,      2 * m.chunk + 1, 31,
                                  32,          33};
  if (empties) edges.push_back(0);
  std::int64_t length = c.one_in(3) ? c.between(empties ? 0 : 1, std::max<std::int64_t>(1, room)) : c.pick(edges);
  if (c.one_in(12)) length = room;  // Exactly what is left.
  return std::clamp<std::int64_t>(length, empties ? 0 : 1, std::max<std::int64_t>(room, 0));
}

MicrobatchLengths draw_documents(Choices& c, const Scenario& s, bool empties) {
  MicrobatchLengths list;
  std::int64_t used = 0;
  if (empties && c.one_in(8)) return list;
  do {
    // The longest document whose slot still fits.
    std::int64_t room = s.data.pack_length - used;
    while (room > 0 && used + slot_rows(room, s.data.gaps, s.data.align) > s.data.pack_length) --room;
    if (room == 0 && !empties) break;
    const std::int64_t length = draw_length(c, s, empties, room);
    list.push_back(length);
    used += slot_rows(length, s.data.gaps, s.data.align);
  } while (list.size() < 24 && !c.one_in(5));
  return list;
}

// Long packs where they are few: the rows of all passes are what a case costs. Every length meets several ranks, many
// steps and many microbatches; only not all of them at once.
std::int64_t draw_pack_length(Choices& c, const Scenario& s) {
  constexpr std::int64_t kMostRows = 768;
  std::int64_t passes = 0;
  for (std::int64_t step = 0; step < s.training.steps; ++step) passes += s.training.microbatches_at(step);
  passes *= s.parallel.data;
  std::vector<std::int64_t> lengths{32, 64, 17, 96, 128};
  std::erase_if(lengths, [&](std::int64_t length) { return length != 17 && passes * length > kMostRows; });
  return c.pick(lengths);
}

void draw_data(Choices& c, const Swarm& swarm, Scenario& s) {
  s.data.pack_length = draw_pack_length(c, s);
  if (swarm.bf16) s.data.pack_length -= s.data.pack_length % 16;  // L03: 17 rows become 16.
  if (swarm.gaps) {
    s.data.gaps = c.between(0, 3);
    s.data.align = c.pick<std::int64_t>({1, 2, 4, 8});
    s.data.tail = c.one_in(2) ? Tail::append_dummy_seq : Tail::extend_last;
  }
  if (swarm.masks) {
    s.data.mask.prefix = c.between(0, 3);
    s.data.mask.rate = Ratio{c.pick<std::int64_t>({0, 300'000, 900'000})};
    const std::int64_t all = s.training.microbatches * s.parallel.data;
    if (all > 1 && c.one_in(2)) s.data.mask.microbatches = {c.between(0, all - 1)};
  }
  s.data.documents.clear();
  const std::int64_t layouts = c.between(1, 3);
  for (std::int64_t step = 0; step < layouts; ++step) {
    s.data.documents.emplace_back();
    do {
      s.data.documents.back().push_back(draw_documents(c, s, swarm.empties));
    } while (s.data.documents.back().size() < 4 && c.one_in(2));
  }
}

// Who shares the work; how it is cut comes when the graphs are known.
void draw_ranks(Choices& c, const Swarm& swarm, Scenario& s) {
  if (!swarm.sharding) return;
  s.parallel.data = c.pick<std::int64_t>({2, 1, 3, 4});
  s.fsdp.strategy =
      c.pick<Sharding>({Sharding::optim_grads_params, Sharding::optim_grads, Sharding::optim, Sharding::no_shard});
  if (s.parallel.data == 1 && s.fsdp.strategy == Sharding::no_shard) s.fsdp.strategy = Sharding::optim_grads_params;
}

void draw_training(Choices& c, const Swarm& swarm, Scenario& s) {
  Scenario::Training& t = s.training;
  const std::int64_t most = std::min<std::int64_t>(4, 9 / s.parallel.data);  // Of one rank.
  t.steps = c.between(3, 5);
  t.microbatches = c.between(1, most);
  std::int64_t fewest = t.microbatches;
  if (swarm.change) {
    const std::int64_t count = c.between(1, most);
    t.change_microbatches_at = {{c.between(1, t.steps - 1), count}};
    fewest = std::min(fewest, count);
  }
  t.in_flight = c.between(1, fewest);
  t.seed = c.between(0, 1000);
  if (swarm.evaluation) t.eval_every = c.between(1, t.steps);
  t.optimizer.decay_steps = t.steps;
  if (!swarm.schedules) return;
  t.optimizer.schedule = c.pick<LrSchedule>({LrSchedule::constant, LrSchedule::linear, LrSchedule::cosine});
  t.optimizer.lr_warmup = c.between(0, t.steps);
  t.optimizer.decay_steps = c.between(1, 2 * t.steps);
  t.optimizer.min_lr = c.one_in(2) ? 1.0e-4 : 0;
  t.optimizer.clip = c.pick<double>({1.0, 0, 0.01, 100});
  t.optimizer.weight_decay = c.pick<double>({0.01, 0, 1});
}

// The part of a layer of experts that is captured: L17 to L20.
void draw_expert_modules(Choices& c, const Scenario::Model::Moe& m, bool padded, std::vector<GraphModule>& modules) {
  if (padded && c.one_in(2)) {
    modules.push_back(GraphModule::moe);
    return;
  }
  modules.push_back(GraphModule::moe_router);
  const bool static_sizes = (padded || !m.capacity_factor) && !m.host_sync;
  if (static_sizes && c.one_in(2)) modules.push_back(GraphModule::moe_preprocess);
}

std::vector<GraphModule> draw_modules(Choices& c, const Swarm& swarm, const Scenario::Model& model) {
  const std::string& pattern = model.pattern;
  const bool dynamic = has_experts(model) && !drops_and_pads(model);
  std::vector<GraphModule> modules;
  if (!swarm.late_copies && c.one_in(2) && !dynamic) return modules;  // Whole layers.
  if (pattern.find('*') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::attn);
  if (pattern.find('-') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::mlp);
  if (has_experts(model) && !swarm.late_copies && !c.one_in(3))
    draw_expert_modules(c, model.moe, drops_and_pads(model), modules);
  if (pattern.find('M') != std::string::npos && !c.one_in(2)) modules.push_back(GraphModule::mamba);
  if (modules.empty() && dynamic) modules.push_back(GraphModule::moe_router);
  return modules;
}

// Slots of the microbatches after warm-up, the most that a rank needs of each: their smallest count decides which
// capacities leave something to replay.
std::vector<std::int64_t> slot_counts(const Scenario& s) {
  std::vector<std::int64_t> counts;
  const auto data = open_data(s);
  const auto ranks = static_cast<std::size_t>(s.parallel.data);
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

void draw_graphs(Choices& c, const Swarm& swarm, Scenario& s) {
  Scenario::CudaGraph& g = s.cuda_graph;
  g.impl = c.pick<GraphImpl>(
      {GraphImpl::none, GraphImpl::partial, GraphImpl::partial, GraphImpl::partial, GraphImpl::full_iteration});
  // L19: shapes that follow the data lie in no graph of everything.
  const bool dynamic = has_experts(s.model) && !drops_and_pads(s.model);
  if (dynamic && g.impl == GraphImpl::full_iteration) g.impl = GraphImpl::partial;
  // L37: nor do several ranks of one process.
  if (s.parallel.data > 1 && g.impl == GraphImpl::full_iteration) g.impl = GraphImpl::partial;
  g.warmup_steps = c.between(0, s.training.steps - 1);
  if (g.impl == GraphImpl::none) return;
  if (g.impl == GraphImpl::partial) g.modules = draw_modules(c, swarm, s.model);
  // Around a count that occurs: one below, equal, one above.
  const std::vector<std::int64_t> counts = slot_counts(s);
  const std::int64_t fewest = *std::min_element(counts.begin(), counts.end());
  const std::int64_t around = std::max(fewest, c.pick(counts) + c.between(0, 2) - 1);
  g.max_packed_seqs = {around};
  if (swarm.buckets) g.max_packed_seqs.push_back(around + c.between(1, 9));
  // L14: after the first capture, before the last step.
  if (swarm.recapture && s.training.steps > g.warmup_steps + 1) {
    s.training.recapture_at = {c.between(g.warmup_steps + 1, s.training.steps - 1)};
  }
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
  return std::find(s.offload.modules.begin(), s.offload.modules.end(), module) != s.offload.modules.end();
}

void draw_offload_modules(Choices& c, Scenario& s) {
  for (const OffloadModule module : offloadable_modules(s)) {
    const bool saved = !recomputes(s, Recompute::layernorm) || offload_row(module).kept != Kept::norm_output;  // L27
    if (!c.one_in(3) && saved) s.offload.modules.push_back(module);
  }
  if (!offloads(s, OffloadModule::core_attn)) std::erase(s.offload.modules, OffloadModule::attn_proj);  // L25
}

// Experts outside of graphs only: L30.
void draw_delay(Choices& c, const Swarm& swarm, Scenario& s) {
  s.offload.delay_until_cuda_graph = swarm.late_copies || c.one_in(2);
  if (!check_legality(s).empty()) s.offload.delay_until_cuda_graph = false;
}

void draw_offload(Choices& c, const Swarm& swarm, Scenario& s) {
  const bool graphs = s.cuda_graph.impl != GraphImpl::none;
  if ((!swarm.late_copies && !c.one_in(3)) || (graphs && s.cuda_graph.warmup_steps == 0)) return;  // L28
  const bool full = s.cuda_graph.impl == GraphImpl::full_iteration;
  if (full || c.one_in(3)) s.offload.max_inflight = c.between(0, 4);  // L29
  draw_offload_modules(c, s);
  if (s.offload.modules.empty()) {
    s.offload = {};
    return;
  }
  if (c.one_in(2)) s.offload.fraction = Ratio{c.pick<std::int64_t>({500'000, 0, 800'000, 333'333, 1})};
  if (c.one_in(4)) s.offload.pool_slack = c.between(1, 3);
  if (c.one_in(5)) s.offload.min_bytes = c.pick<std::int64_t>({2'000, 500, 9'000});
  const OffloadDemand demand = offload_demand(s);
  if (demand.fixed == 0 && demand.per_pair.empty()) s.offload.min_bytes = 0;  // Else nothing would move.
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
  f.unit = f.unit_is_list ? draw_unit_list(c, blocks) : std::vector<std::int64_t>{c.between(1, blocks)};
  f.prefetch = c.pick<std::int64_t>({1, 0, 2});
  if (s.cuda_graph.impl != GraphImpl::partial) f.double_buffer = !c.one_in(2);  // L32
  // A few buckets of embedding and head each.
  if (c.one_in(3)) f.bucket_bytes = std::max<std::int64_t>(1, 4 * s.model.hidden * s.model.vocab / c.between(2, 5));
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
    // A case has up to some thousand ops on compute or captured: long delays of each would be most of its time on a
    // GPU.
    const DelayStream stream = c.pick(streams);
    const bool busy = stream == DelayStream::compute || stream == DelayStream::graph;
    s.checker.delays.push_back(
        {stream, std::nullopt, std::min<std::int64_t>(c.pick<std::int64_t>({2, 8, 30}), busy ? 8 : 30)});
    if (s.parallel.data > 1 && c.one_in(2)) s.checker.delays.back().rank = c.between(0, s.parallel.data - 1);
  }
}

bool has_target(const Scenario& s) {
  const auto data = open_data(s);
  for (std::int64_t step = 0; step < s.training.steps; ++step) {
    if (data->training(step).targets > 0) return true;
  }
  return false;
}

}  // namespace

Scenario generate_scenario(Choices& c) {
  Scenario s;
  s.name = "random";
  const Swarm swarm = draw_swarm(c);
  s.numerics = {swarm.bf16 ? Numerics::bf16 : Numerics::fp32};
  draw_model(c, swarm, s.model);
  draw_ranks(c, swarm, s);
  draw_training(c, swarm, s);
  draw_data(c, swarm, s);
  if (!has_target(s)) {  // L12: a document of two tokens that nothing masks.
    s.data.mask = {};
    s.data.documents[0][0] = {2};
    s.data.gaps = 0;
    s.data.align = 1;
  }
  draw_graphs(c, swarm, s);
  s.checker.schedule.seed = c.between(0, 1000);
  draw_recompute(c, s);
  draw_offload(c, swarm, s);
  draw_sharding(c, s);
  draw_pressure(c, s);
  return s;
}

}  // namespace lockstep
