#include "harness/generate/features.h"

#include <algorithm>
#include <set>

#include "harness/expect/sharding_plan.h"
#include "kernels/core/require.h"
#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// What several predicates look at, computed once a scenario.
struct Facts {
  explicit Facts(const Scenario& scenario) : s(scenario) {
    const bool listed = s.data.kind == DataKind::lengths;
    if (listed) note_lists();
    if (listed && !graphs()) return;
    const auto data = open_data(s);
    for (std::int64_t step = 0; step < s.training.steps; ++step) {
      const StepData documents = data->training(step);
      if (!listed) {
        for (const Microbatch& microbatch : documents.microbatches) note(lengths_of(microbatch));
      }
      if (graphs()) note_slots(documents);
    }
  }
  void note(const MicrobatchLengths& list) {
    lengths.insert(list.begin(), list.end());
    least = std::min<std::int64_t>(least, std::ssize(list));
    most = std::max<std::int64_t>(most, std::ssize(list));
  }
  void note_lists() {
    for (const StepLengths& step : s.data.documents) {
      for (const MicrobatchLengths& list : step) note(list);
    }
  }
  void note_slots(const StepData& documents) {
    const auto ranks = static_cast<std::size_t>(s.parallel.data);
    for (std::size_t first = 0; first < documents.microbatches.size(); first += ranks) {
      std::int64_t slots = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        slots = std::max(slots, slots_in_use(s.data, documents.microbatches[first + r]));
      }
      over.insert(slots - s.cuda_graph.max_packed_seqs.back());
    }
  }
  bool graphs() const { return with_graphs(s); }
  bool layer(const char* symbols) const { return s.model.pattern.find(symbols) != std::string::npos; }
  bool captures(GraphModule module) const { return holds(s.cuda_graph.modules, module); }
  bool offloads() const { return with_offload(s); }
  bool moves(OffloadModule module) const { return holds(s.offload.modules, module); }
  bool recomputes(Recompute module) const { return holds(s.model.recompute, module); }
  bool poisons(Poison poison) const { return holds(s.checker.poison, poison); }
  bool delays(DelayStream stream) const {
    return std::any_of(s.checker.delays.begin(), s.checker.delays.end(),
                       [stream](const Scenario::Delay& delay) { return delay.stream == stream; });
  }
  const Scenario::Model::Moe& moe() const { return s.model.moe; }
  const Scenario::Training& training() const { return s.training; }
  const Scenario::Training::Optimizer& optimizer() const { return s.training.optimizer; }
  bool draws(Shape shape) const { return s.data.kind == DataKind::distribution && s.data.distribution.shape == shape; }
  bool shards() const { return with_sharding(s); }
  bool gathers() const { return s.fsdp.strategy == Sharding::optim_grads_params; }            // In every pass.
  bool takes_turns() const { return gathers() || s.fsdp.strategy == Sharding::optim_grads; }  // In its buffers.
  bool has_odd_unit() const { return !plan_sharding(s).persistent.empty(); }

  const Scenario& s;
  std::set<std::int64_t> lengths;  // Of all documents.
  std::int64_t least = 1'000'000;  // Documents of the microbatch with the fewest,
  std::int64_t most = 0;           // and of the one with the most.
  std::set<std::int64_t> over;     // Slots of a microbatch on the rank that needs most, less the largest capacity.
};

struct Row {
  const char* name;
  bool boundary;
  bool (*has)(const Facts&);
};

constexpr bool kSwitch = false, kEdge = true;

const Scenario kPlain;

constexpr Row kRows[] = {
    {"bf16", kSwitch, [](const Facts& f) { return f.s.numerics.front() == Numerics::bf16; }},
    {"mamba", kSwitch, [](const Facts& f) { return f.layer("M"); }},
    {"attention", kSwitch, [](const Facts& f) { return f.layer("*"); }},
    {"mlp", kSwitch, [](const Facts& f) { return f.layer("-"); }},
    {"experts", kSwitch, [](const Facts& f) { return f.layer("E"); }},
    {"a block of two", kSwitch, [](const Facts& f) { return f.layer("*-"); }},
    {"a block of attention and experts", kSwitch, [](const Facts& f) { return f.layer("*E"); }},
    {"sigmoid router", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().router == Router::sigmoid; }},
    {"expert bias", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().expert_bias; }},
    {"shared expert", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().shared_hidden > 0; }},
    {"balance loss", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().aux_loss.millionths > 0; }},
    {"z loss", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().z_loss.millionths > 0; }},
    {"dropless", kSwitch, [](const Facts& f) { return f.layer("E") && !f.moe().capacity_factor; }},
    {"capacity without padding", kSwitch,
     [](const Facts& f) { return f.layer("E") && f.moe().capacity_factor && !f.moe().pad_to_capacity; }},
    {"host sync", kSwitch, [](const Facts& f) { return f.layer("E") && f.moe().host_sync; }},
    {"one slot", kEdge, [](const Facts& f) { return f.layer("E") && f.moe().top_k == 1; }},
    {"every expert chosen", kEdge, [](const Facts& f) { return f.layer("E") && f.moe().top_k == f.moe().experts; }},
    {"more experts than lanes", kEdge, [](const Facts& f) { return f.layer("E") && f.moe().experts > 128; }},
    {"grouped queries", kSwitch,
     [](const Facts& f) { return f.layer("*") && f.s.model.attention.heads > f.s.model.attention.kv_heads; }},
    {"several groups", kSwitch, [](const Facts& f) { return f.layer("M") && f.s.model.mamba.groups > 1; }},
    {"dropout", kSwitch, [](const Facts& f) { return f.s.model.dropout.millionths > 0; }},
    {"tied embedding", kSwitch, [](const Facts& f) { return f.s.model.tied_embedding; }},
    {"swiglu", kSwitch,
     [](const Facts& f) {
       return (f.layer("-") || f.layer("E")) && f.s.model.mlp.activation == MlpActivation::swiglu;
     }},
    {"gaps", kSwitch, [](const Facts& f) { return f.s.data.gaps > 0; }},
    {"align", kSwitch, [](const Facts& f) { return f.s.data.align > 1; }},
    {"tail as a slot", kSwitch, [](const Facts& f) { return f.s.data.tail == Tail::append_dummy_seq; }},
    {"masked prefix", kSwitch, [](const Facts& f) { return f.s.data.mask.prefix > 0; }},
    {"masked at random", kSwitch, [](const Facts& f) { return f.s.data.mask.rate.millionths > 0; }},
    {"masked microbatch", kSwitch, [](const Facts& f) { return !f.s.data.mask.microbatches.empty(); }},
    {"no graphs", kSwitch, [](const Facts& f) { return !f.graphs(); }},
    {"partial graphs", kSwitch, [](const Facts& f) { return f.s.cuda_graph.impl == GraphImpl::partial; }},
    {"full iteration", kSwitch, [](const Facts& f) { return f.s.cuda_graph.impl == GraphImpl::full_iteration; }},
    {"module attn", kSwitch, [](const Facts& f) { return f.captures(GraphModule::attn); }},
    {"module mlp", kSwitch, [](const Facts& f) { return f.captures(GraphModule::mlp); }},
    {"module mamba", kSwitch, [](const Facts& f) { return f.captures(GraphModule::mamba); }},
    {"module moe", kSwitch, [](const Facts& f) { return f.captures(GraphModule::moe); }},
    {"module moe_router", kSwitch, [](const Facts& f) { return f.captures(GraphModule::moe_router); }},
    {"module moe_preprocess", kSwitch, [](const Facts& f) { return f.captures(GraphModule::moe_preprocess); }},
    {"two modules", kSwitch, [](const Facts& f) { return f.s.cuda_graph.modules.size() > 1; }},
    {"buckets", kSwitch, [](const Facts& f) { return f.s.cuda_graph.max_packed_seqs.size() > 1; }},
    {"a limit of graphs", kSwitch, [](const Facts& f) { return f.s.cuda_graph.graph_memory_limit > 0; }},
    {"no warm-up", kEdge, [](const Facts& f) { return f.graphs() && f.s.cuda_graph.warmup_steps == 0; }},
    {"long warm-up", kSwitch, [](const Facts& f) { return f.graphs() && f.s.cuda_graph.warmup_steps > 1; }},
    {"evaluation", kSwitch, [](const Facts& f) { return f.s.training.eval_every > 0; }},
    {"recapture", kSwitch, [](const Facts& f) { return !f.s.training.recapture_at.empty(); }},
    {"changing microbatches", kSwitch, [](const Facts& f) { return !f.s.training.change_microbatches_at.empty(); }},
    {"offload", kSwitch, [](const Facts& f) { return f.offloads(); }},
    {"offload of a norm's input", kSwitch,
     [](const Facts& f) { return f.moves(OffloadModule::attn_norm) || f.moves(OffloadModule::mlp_norm); }},
    {"offload of a part", kSwitch,
     [](const Facts& f) { return f.offloads() && f.s.offload.fraction.millionths < 1'000'000; }},
    {"offload throttled", kSwitch, [](const Facts& f) { return f.offloads() && f.s.offload.max_inflight; }},
    {"offload pool slack", kSwitch, [](const Facts& f) { return f.s.offload.pool_slack > 0; }},
    {"offload of large tensors", kSwitch, [](const Facts& f) { return f.s.offload.min_bytes > 0; }},
    {"offload of experts", kSwitch,
     [](const Facts& f) { return f.moves(OffloadModule::expert_fc1) || f.moves(OffloadModule::moe_act); }},
    {"offload delayed", kSwitch, [](const Facts& f) { return f.s.offload.delay_until_cuda_graph; }},
    {"several ranks", kSwitch, [](const Facts& f) { return f.s.parallel.data > 1; }},
    {"more than two ranks", kSwitch, [](const Facts& f) { return f.s.parallel.data > 2; }},
    {"ranks without shards", kSwitch, [](const Facts& f) { return f.s.parallel.data > 1 && !f.shards(); }},
    {"shards", kSwitch, [](const Facts& f) { return f.shards(); }},
    {"sharded optimizer", kSwitch, [](const Facts& f) { return f.s.fsdp.strategy == Sharding::optim; }},
    {"sharded gradients", kSwitch, [](const Facts& f) { return f.s.fsdp.strategy == Sharding::optim_grads; }},
    {"sharded parameters", kSwitch, [](const Facts& f) { return f.s.fsdp.strategy == Sharding::optim_grads_params; }},
    {"shards on one rank", kEdge, [](const Facts& f) { return f.shards() && f.s.parallel.data == 1; }},
    {"several units", kSwitch, [](const Facts& f) { return f.shards() && plan_sharding(f.s).units > 1; }},
    {"units of a list", kSwitch, [](const Facts& f) { return f.shards() && f.s.fsdp.unit_is_list; }},
    {"a persistent buffer", kSwitch, [](const Facts& f) { return f.shards() && f.has_odd_unit(); }},
    {"no persistent buffers", kSwitch,
     [](const Facts& f) { return f.takes_turns() && f.s.fsdp.double_buffer && !f.s.fsdp.persist_buf_on_alloc_fail; }},
    {"temporary buffers", kSwitch, [](const Facts& f) { return f.takes_turns() && !f.s.fsdp.double_buffer; }},
    {"no prefetch", kEdge, [](const Facts& f) { return f.gathers() && f.s.fsdp.prefetch == 0; }},
    {"prefetch of two", kSwitch, [](const Facts& f) { return f.gathers() && f.s.fsdp.prefetch == 2; }},
    {"a cut embedding", kSwitch, [](const Facts& f) { return f.shards() && f.s.fsdp.bucket_bytes > 0; }},
    {"norms computed again", kSwitch, [](const Facts& f) { return f.recomputes(Recompute::layernorm); }},
    {"activations computed again", kSwitch,
     [](const Facts& f) { return f.recomputes(Recompute::mlp_act) || f.recomputes(Recompute::moe_act); }},
    {"one in flight", kEdge, [](const Facts& f) { return f.s.training.in_flight == 1; }},
    {"three in flight", kSwitch, [](const Facts& f) { return f.s.training.in_flight >= 3; }},
    {"learning rate schedule", kSwitch,
     [](const Facts& f) { return f.s.training.optimizer.schedule != LrSchedule::constant; }},
    {"no clipping", kEdge, [](const Facts& f) { return f.optimizer().clip == 0; }},
    {"clipping by another norm", kSwitch,
     [](const Facts& f) { return f.optimizer().clip > 0 && f.optimizer().clip != kPlain.training.optimizer.clip; }},
    {"another learning rate", kSwitch,
     [](const Facts& f) { return f.optimizer().lr > 0 && f.optimizer().lr != kPlain.training.optimizer.lr; }},
    {"no learning", kEdge, [](const Facts& f) { return f.optimizer().lr == 0; }},
    {"another weight decay", kSwitch,
     [](const Facts& f) {
       return f.optimizer().weight_decay > 0 && f.optimizer().weight_decay != kPlain.training.optimizer.weight_decay;
     }},
    {"no weight decay", kEdge, [](const Facts& f) { return f.optimizer().weight_decay == 0; }},
    {"other betas", kSwitch,
     [](const Facts& f) {
       return f.optimizer().beta1 != kPlain.training.optimizer.beta1 ||
              f.optimizer().beta2 != kPlain.training.optimizer.beta2;
     }},
    {"a beta of zero", kEdge, [](const Facts& f) { return f.optimizer().beta1 == 0 || f.optimizer().beta2 == 0; }},
    {"another epsilon of the optimizer", kSwitch,
     [](const Facts& f) { return f.optimizer().eps != kPlain.training.optimizer.eps; }},
    {"another epsilon of norms", kSwitch, [](const Facts& f) { return f.s.model.norm_eps != kPlain.model.norm_eps; }},
    {"another base of rotations", kSwitch,
     [](const Facts& f) {
       return f.layer("*") && f.s.model.attention.rope_base != kPlain.model.attention.rope_base;
     }},
    {"a seed over 32 bits", kSwitch, [](const Facts& f) { return f.training().seed >> 32 > 0; }},
    {"the largest seed", kEdge, [](const Facts& f) { return f.training().seed == kMostSeed; }},
    {"a schedule's seed over 32 bits", kSwitch, [](const Facts& f) { return f.s.checker.schedule.seed >> 32 > 0; }},
    {"one step", kEdge, [](const Facts& f) { return f.training().steps == 1; }},
    {"two steps", kEdge, [](const Facts& f) { return f.training().steps == 2; }},
    {"more than five steps", kSwitch, [](const Facts& f) { return f.training().steps > 5; }},
    {"more than four microbatches", kSwitch, [](const Facts& f) { return most_microbatches(f.training()) > 4; }},
    {"more than four in flight", kSwitch, [](const Facts& f) { return f.training().in_flight > 4; }},
    {"two changes of the count", kSwitch,
     [](const Facts& f) { return f.training().change_microbatches_at.size() > 1; }},
    {"two recaptures", kSwitch, [](const Facts& f) { return f.training().recapture_at.size() > 1; }},
    {"more than two buckets", kSwitch,
     [](const Facts& f) { return f.graphs() && f.s.cuda_graph.max_packed_seqs.size() > 2; }},
    {"more than four ranks", kSwitch, [](const Facts& f) { return f.s.parallel.data > 4; }},
    {"ranks asked to be local", kSwitch, [](const Facts& f) { return f.s.parallel.transport == Transport::local; }},
    {"wide heads of attention", kSwitch,
     [](const Facts& f) { return f.layer("*") && f.s.model.attention.head_dim >= 64; }},
    {"a wide state", kSwitch, [](const Facts& f) { return f.layer("M") && f.s.model.mamba.state >= 64; }},
    {"the widest convolution", kEdge, [](const Facts& f) { return f.layer("M") && f.s.model.mamba.conv_width == 8; }},
    {"a pack over 128", kSwitch, [](const Facts& f) { return f.s.data.pack_length > 128; }},
    {"more than 24 documents", kSwitch, [](const Facts& f) { return f.most > 24; }},
    {"truncated document", kSwitch,
     [](const Facts& f) { return !f.lengths.empty() && *f.lengths.rbegin() > f.s.data.pack_length; }},
    {"several masked microbatches", kSwitch, [](const Facts& f) { return f.s.data.mask.microbatches.size() > 1; }},
    {"lengths drawn uniformly", kSwitch, [](const Facts& f) { return f.draws(Shape::uniform); }},
    {"lengths drawn lognormally", kSwitch, [](const Facts& f) { return f.draws(Shape::lognormal); }},
    {"equal lengths", kSwitch, [](const Facts& f) { return f.draws(Shape::equal); }},
    {"one giant document", kSwitch, [](const Facts& f) { return f.draws(Shape::one_giant); }},
    {"many tiny documents", kSwitch, [](const Facts& f) { return f.draws(Shape::many_tiny); }},
    {"measured counts of documents", kSwitch, [](const Facts& f) { return f.draws(Shape::measured); }},
    {"empty document", kEdge, [](const Facts& f) { return f.lengths.contains(0); }},
    {"one token", kEdge, [](const Facts& f) { return f.lengths.contains(1); }},
    {"two tokens", kEdge, [](const Facts& f) { return f.lengths.contains(2); }},
    {"conv width - 1", kEdge,
     [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width - 1); }},
    {"conv width", kEdge,
     [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width); }},
    {"conv width + 1", kEdge,
     [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width + 1); }},
    {"chunk - 1", kEdge, [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk - 1); }},
    {"chunk", kEdge, [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk); }},
    {"chunk + 1", kEdge, [](const Facts& f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk + 1); }},
    {"a full pack", kEdge, [](const Facts& f) { return f.lengths.contains(f.s.data.pack_length); }},
    {"no document", kEdge, [](const Facts& f) { return f.least == 0; }},
    {"capacity - 1", kEdge, [](const Facts& f) { return f.over.contains(-1); }},
    {"capacity", kEdge, [](const Facts& f) { return f.over.contains(0); }},
    {"capacity + 1", kEdge, [](const Facts& f) { return f.over.contains(1); }},
    {"delays", kSwitch, [](const Facts& f) { return !f.s.checker.delays.empty(); }},
    {"delays in graphs", kSwitch, [](const Facts& f) { return f.delays(DelayStream::graph); }},
    {"delays of exchanges", kSwitch,
     [](const Facts& f) { return f.delays(DelayStream::gather) || f.delays(DelayStream::reduce); }},
    {"delays of one rank", kSwitch,
     [](const Facts& f) {
       return std::any_of(f.s.checker.delays.begin(), f.s.checker.delays.end(),
                          [](const Scenario::Delay& delay) { return delay.rank.has_value(); });
     }},
    {"checker off", kSwitch, [](const Facts& f) { return !f.s.checker.hazards; }},
    {"fresh memory not poisoned", kSwitch, [](const Facts& f) { return !f.poisons(Poison::fresh); }},
    {"schedule by priorities", kSwitch, [](const Facts& f) { return f.s.checker.schedule.kind == ScheduleKind::pct; }},
    {"the program's own schedule", kSwitch,
     [](const Facts& f) { return f.s.checker.schedule.kind == ScheduleKind::program; }},
    {"poisoned padding", kSwitch, [](const Facts& f) { return f.poisons(Poison::padding); }},
    {"poisoned staging", kSwitch, [](const Facts& f) { return f.poisons(Poison::staging); }},
};
static_assert(std::size(kRows) <= kMostTraits);

// Groups of which a legal scenario has at most one, or of which one side excludes the other.
struct Exclusion {
  std::vector<const char*> one, other;
};
const std::vector<Exclusion>& exclusions() {
  static const std::vector<Exclusion> list{
      {{"no graphs"}, {"partial graphs",   "full iteration", "module attn",           "module mlp",
                       "module mamba",     "module moe",     "module moe_router",     "module moe_preprocess",
                       "two modules",      "buckets",        "more than two buckets", "no warm-up",
                       "long warm-up",     "recapture",      "two recaptures",        "capacity - 1",
                       "capacity",         "capacity + 1",   "delays in graphs",      "offload delayed",
                       "a limit of graphs"}},
      {{"full iteration"},
       {"partial graphs", "module attn", "module mlp", "module mamba", "module moe", "module moe_router",
        "module moe_preprocess", "two modules", "dropless", "capacity without padding", "host sync", "offload delayed",
        "several ranks", "more than two ranks", "more than four ranks", "ranks asked to be local",
        "ranks without shards", "delays of one rank"}},
      {{"module moe"},
       {"module moe_router", "module moe_preprocess", "dropless", "capacity without padding", "host sync",
        "offload delayed"}},
      {{"module moe_preprocess"}, {"capacity without padding", "host sync"}},
      {{"dropless"}, {"capacity without padding"}},
      {{"every expert chosen"}, {"more experts than lanes", "one slot"}},  // Top-k is at most 16, and experts are two.
      {{"no warm-up"},
       {"long warm-up", "offload", "offload of a norm's input", "offload of a part", "offload throttled",
        "offload pool slack", "offload of large tensors", "offload of experts", "offload delayed"}},
      {{"one in flight"}, {"three in flight", "more than four in flight"}},
      {{"one step"},
       {"two steps", "more than five steps", "long warm-up", "recapture", "two recaptures", "changing microbatches",
        "two changes of the count", "offload", "offload of a norm's input", "offload of a part", "offload throttled",
        "offload pool slack", "offload of large tensors", "offload of experts", "offload delayed"}},
      {{"two steps"}, {"more than five steps", "long warm-up", "two recaptures", "two changes of the count"}},
      {{"no clipping"}, {"clipping by another norm"}},
      {{"no learning"}, {"another learning rate"}},
      {{"no weight decay"}, {"another weight decay"}},
      {{"schedule by priorities"}, {"the program's own schedule"}},
      {{"ranks without shards"},
       {"shards", "sharded optimizer", "sharded gradients", "sharded parameters", "shards on one rank", "several units",
        "units of a list", "a persistent buffer", "no persistent buffers", "temporary buffers", "no prefetch",
        "prefetch of two", "a cut embedding", "delays of exchanges"}},
      {{"sharded optimizer"},
       {"sharded gradients", "sharded parameters", "a persistent buffer", "no persistent buffers", "temporary buffers",
        "no prefetch", "prefetch of two"}},
      {{"sharded gradients"}, {"sharded parameters", "no prefetch", "prefetch of two"}},
      {{"no persistent buffers"}, {"temporary buffers", "prefetch of two"}},
      {{"shards on one rank"},
       {"several ranks", "more than two ranks", "more than four ranks", "ranks asked to be local",
        "delays of one rank"}},
      {{"a persistent buffer"}, {"no persistent buffers", "temporary buffers"}},
      {{"no prefetch"}, {"prefetch of two"}},
      {{"temporary buffers"},
       {"partial graphs", "module attn", "module mlp", "module mamba", "module moe", "module moe_router",
        "module moe_preprocess", "two modules", "offload delayed"}},
      {{"gaps"}, {"a full pack", "truncated document"}},  // Gap rows leave no room for it.
  };
  return list;
}

// Lengths come from one shape, or from lists.
const std::vector<const char*> kShapes{"lengths drawn uniformly", "lengths drawn lognormally",
                                       "equal lengths",           "one giant document",
                                       "many tiny documents",     "measured counts of documents"};

std::size_t index_of(std::string_view name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return name == r.name; });
  require(row != std::end(kRows), "an exclusion names a feature that there is");
  return static_cast<std::size_t>(row - std::begin(kRows));
}

std::vector<bool> excluded_pairs() {
  std::vector<bool> excluded(kMostTraits * kMostTraits);
  const auto exclude = [&](const char* one, const char* other) {
    excluded[index_of(one) * kMostTraits + index_of(other)] = true;
    excluded[index_of(other) * kMostTraits + index_of(one)] = true;
  };
  for (const Exclusion& exclusion : exclusions()) {
    for (const char* one : exclusion.one) {
      for (const char* other : exclusion.other) exclude(one, other);
    }
  }
  for (std::size_t a = 0; a < kShapes.size(); ++a) {
    for (const char* other : {"truncated document", "no document"}) exclude(kShapes[a], other);
    for (std::size_t b = 0; b < a; ++b) exclude(kShapes[a], kShapes[b]);
  }
  return excluded;
}

}  // namespace

const std::vector<TraitName>& trait_names() {
  static const std::vector<TraitName> names = [] {
    std::vector<TraitName> list;
    for (const Row& row : kRows) list.push_back({row.name, row.boundary});
    return list;
  }();
  return names;
}

Traits features_of(const Scenario& scenario) {
  const Facts facts(scenario);
  Traits traits;
  for (std::size_t i = 0; i < std::size(kRows); ++i) traits[i] = kRows[i].has(facts);
  return traits;
}

bool can_meet(std::size_t a, std::size_t b) {
  static const std::vector<bool> excluded = excluded_pairs();
  return a != b && !excluded[a * kMostTraits + b];
}

std::string to_hex(const Traits& traits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (std::size_t i = 0; i < trait_names().size(); i += 4) {
    int digit = 0;
    for (std::size_t bit = 0; bit < 4 && i + bit < kMostTraits; ++bit) digit |= traits[i + bit] << bit;
    hex += kDigits[digit];
  }
  return hex;
}

Traits traits_from_hex(const std::string& hex) {
  Traits traits;
  for (std::size_t i = 0; i < hex.size() && 4 * i < kMostTraits; ++i) {
    const int digit = hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10;
    for (std::size_t bit = 0; bit < 4; ++bit) traits[4 * i + bit] = (digit >> bit & 1) != 0;
  }
  return traits;
}

}  // namespace lockstep
