#include "harness/generate/features.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>

#include "harness/expect/sharding_plan.h"
#include "harness/generate/traits.h"
#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Facts that several predicates need, computed once a scenario.
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
    const std::int64_t tokens = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    fewest_tokens = std::min(fewest_tokens, tokens);
    most_tokens = std::max(most_tokens, tokens);
  }
  void note_lists() {
    for (const StepLengths& step : s.data.documents) {
      for (const MicrobatchLengths& list : step) note(list);
    }
  }
  void note_slots(const StepData& documents) {
    const std::size_t ranks = s.parallel.data;
    for (std::size_t first = 0; first < documents.microbatches.size(); first += ranks) {
      GraphNeed need;
      for (std::size_t r = 0; r < ranks; ++r)
        need = larger(need, need_of(s.data, lengths_of(documents.microbatches[first + r])));
      over.insert(need.slots - s.cuda_graph.max_packed_seqs.back());
      fills_a_power_of_two |= need.slots > 1 &&
                              std::has_single_bit(static_cast<std::uint64_t>(need.slots)) &&
                              holds(s.cuda_graph.max_packed_seqs, need.slots);
      is_too_long |= need.longest > longest_captured(s);
    }
  }
  bool graphs() const { return with_graphs(s); }
  bool buckets() const { return graphs() && s.cuda_graph.max_packed_seqs.size() > 1; }
  bool resumes(const std::function<bool(const Scenario::Resume&)>& so) const {
    return std::any_of(s.training.resume_at.begin(), s.training.resume_at.end(), so);
  }
  bool layer(const char* symbols) const {
    return s.model.pattern.find(symbols) != std::string::npos;
  }
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
  bool draws(Shape shape) const {
    return s.data.kind == DataKind::distribution && s.data.distribution.shape == shape;
  }
  bool shards() const { return with_sharding(s); }
  // Weights are gathered in every pass.
  bool gathers() const { return s.fsdp.strategy == Sharding::optim_grads_params; }
  // Units take turns in the buffers of gradients.
  bool takes_turns() const { return gathers() || s.fsdp.strategy == Sharding::optim_grads; }
  bool has_odd_unit() const { return !plan_sharding(s).persistent.empty(); }

  bool saves(Fp8Layer layer) const {
    return multiplies_fp8(s) && holds(s.fp8.save_original_input, layer);
  }
  bool delays_exponents() const { return multiplies_fp8(s) && s.fp8.recipe == Fp8Recipe::delayed; }
  // A layer of fp8 that is no expert's and sums more than 128 products in each of its three.
  bool has_long_sums() const {
    const Scenario::Model& m = s.model;
    const Scenario::Model::Attention& a = m.attention;
    const std::int64_t gates = m.mlp.activation == MlpActivation::swiglu ? 2 : 1;
    const std::int64_t mixed = a.heads * a.head_dim, qkv = mixed + 2 * a.kv_heads * a.head_dim;
    const std::int64_t inner = m.mamba.d_inner, in_proj = 2 * inner;
    const std::int64_t least_of_layers[] = {
        layer("*") ? std::min(m.hidden, std::max(mixed, qkv)) : 0,
        layer("-") ? std::min(m.hidden, gates * m.mlp.hidden) : 0,
        layer("M") ? std::min(m.hidden, in_proj) : 0,
        layer("E") ? std::min(m.hidden, gates * m.moe.shared_hidden) : 0};
    return most_tokens > 128 && *std::ranges::max_element(least_of_layers) > 128;
  }

  const Scenario& s;
  std::int64_t fewest_tokens = 1'000'000, most_tokens = 0;  // In a microbatch.
  std::set<std::int64_t> lengths;                           // The lengths of all documents.
  std::int64_t least = 1'000'000;  // Documents of the microbatch with the fewest,
  std::int64_t most = 0;           // and of the one with the most.
  // Slots of a microbatch on the rank that needs most, less the largest capacity.
  std::set<std::int64_t> over;
  bool fills_a_power_of_two = false;  // The slots of a microbatch and a capacity.
  bool is_too_long = false;           // A document is longer than cuda_graph.max_seqlen.
};

using F = const Facts&;

enum class Kind : std::uint8_t { a_switch, an_edge, rare, outside };
constexpr Kind kSwitch = Kind::a_switch, kEdge = Kind::an_edge, kRare = Kind::rare,
               kOutside = Kind::outside;

struct Row {
  Trait trait;
  const char* name;
  Kind kind;
  bool (*has)(F);
};

const Scenario kPlain;

// clang-format off: it does not break all lines of a table of this length.
constexpr Row kRows[] = {
    {Trait::bf16, "bf16", kSwitch, [](F f) { return f.s.numerics.front() == Numerics::bf16; }},
    {Trait::mamba, "mamba", kSwitch, [](F f) { return f.layer("M"); }},
    {Trait::attention, "attention", kSwitch, [](F f) { return f.layer("*"); }},
    {Trait::mlp, "mlp", kSwitch, [](F f) { return f.layer("-"); }},
    {Trait::experts, "experts", kSwitch, [](F f) { return f.layer("E"); }},
    {Trait::a_block_of_two, "a block of two", kSwitch, [](F f) { return f.layer("*-"); }},
    {Trait::a_block_of_attention_and_experts, "a block of attention and experts", kSwitch,
     [](F f) { return f.layer("*E"); }},
    {Trait::sigmoid_router, "sigmoid router", kSwitch,
     [](F f) { return f.layer("E") && f.moe().router == Router::sigmoid; }},
    {Trait::expert_bias, "expert bias", kSwitch,
     [](F f) { return f.layer("E") && f.moe().expert_bias; }},
    {Trait::shared_expert, "shared expert", kSwitch,
     [](F f) { return f.layer("E") && f.moe().shared_hidden > 0; }},
    {Trait::balance_loss, "balance loss", kSwitch,
     [](F f) { return f.layer("E") && f.moe().aux_loss.millionths > 0; }},
    {Trait::z_loss, "z loss", kSwitch,
     [](F f) { return f.layer("E") && f.moe().z_loss.millionths > 0; }},
    {Trait::dropless, "dropless", kSwitch,
     [](F f) { return f.layer("E") && !f.moe().capacity_factor; }},
    {Trait::capacity_without_padding, "capacity without padding", kSwitch,
     [](F f) { return f.layer("E") && f.moe().capacity_factor && !f.moe().pad_to_capacity; }},
    {Trait::host_sync, "host sync", kSwitch, [](F f) { return f.layer("E") && f.moe().host_sync; }},
    {Trait::one_slot, "one slot", kEdge, [](F f) { return f.layer("E") && f.moe().top_k == 1; }},
    {Trait::every_expert_chosen, "every expert chosen", kEdge,
     [](F f) { return f.layer("E") && f.moe().top_k == f.moe().experts; }},
    {Trait::more_experts_than_lanes, "more experts than lanes", kEdge,
     [](F f) { return f.layer("E") && f.moe().experts > 128; }},
    {Trait::grouped_queries, "grouped queries", kSwitch,
     [](F f) { return f.layer("*") && f.s.model.attention.heads > f.s.model.attention.kv_heads; }},
    {Trait::several_groups, "several groups", kSwitch,
     [](F f) { return f.layer("M") && f.s.model.mamba.groups > 1; }},
    {Trait::dropout, "dropout", kSwitch, [](F f) { return f.s.model.dropout.millionths > 0; }},
    {Trait::tied_embedding, "tied embedding", kSwitch,
     [](F f) { return f.s.model.tied_embedding; }},
    {Trait::swiglu, "swiglu", kSwitch,
     [](F f) {
       return (f.layer("-") || f.layer("E")) && f.s.model.mlp.activation == MlpActivation::swiglu;
     }},
    {Trait::gaps, "gaps", kSwitch, [](F f) { return f.s.data.gaps > 0; }},
    {Trait::align, "align", kSwitch, [](F f) { return f.s.data.align > 1; }},
    {Trait::tail_as_a_slot, "tail as a slot", kSwitch,
     [](F f) { return f.s.data.tail == Tail::append_dummy_seq; }},
    {Trait::masked_prefix, "masked prefix", kSwitch, [](F f) { return f.s.data.mask.prefix > 0; }},
    {Trait::masked_at_random, "masked at random", kSwitch,
     [](F f) { return f.s.data.mask.rate.millionths > 0; }},
    {Trait::masked_microbatch, "masked microbatch", kSwitch,
     [](F f) { return !f.s.data.mask.microbatches.empty(); }},
    {Trait::no_graphs, "no graphs", kSwitch, [](F f) { return !f.graphs(); }},
    {Trait::partial_graphs, "partial graphs", kSwitch,
     [](F f) { return f.s.cuda_graph.impl == GraphImpl::partial; }},
    {Trait::full_iteration, "full iteration", kSwitch,
     [](F f) { return f.s.cuda_graph.impl == GraphImpl::full_iteration; }},
    {Trait::module_attn, "module attn", kSwitch, [](F f) { return f.captures(GraphModule::attn); }},
    {Trait::module_mlp, "module mlp", kSwitch, [](F f) { return f.captures(GraphModule::mlp); }},
    {Trait::module_mamba, "module mamba", kSwitch,
     [](F f) { return f.captures(GraphModule::mamba); }},
    {Trait::module_moe, "module moe", kSwitch, [](F f) { return f.captures(GraphModule::moe); }},
    {Trait::module_moe_router, "module moe_router", kSwitch,
     [](F f) { return f.captures(GraphModule::moe_router); }},
    {Trait::module_moe_preprocess, "module moe_preprocess", kSwitch,
     [](F f) { return f.captures(GraphModule::moe_preprocess); }},
    {Trait::two_modules, "two modules", kSwitch,
     [](F f) { return f.s.cuda_graph.modules.size() > 1; }},
    {Trait::buckets, "buckets", kSwitch,
     [](F f) { return f.s.cuda_graph.max_packed_seqs.size() > 1; }},
    {Trait::a_limit_of_graphs, "a limit of graphs", kSwitch,
     [](F f) { return f.s.cuda_graph.graph_memory_limit > 0; }},
    {Trait::no_warm_up, "no warm-up", kEdge,
     [](F f) { return f.graphs() && f.s.cuda_graph.warmup_steps == 0; }},
    {Trait::long_warm_up, "long warm-up", kSwitch,
     [](F f) { return f.graphs() && f.s.cuda_graph.warmup_steps > 1; }},
    {Trait::evaluation, "evaluation", kSwitch, [](F f) { return f.s.training.eval_every > 0; }},
    {Trait::recapture, "recapture", kSwitch,
     [](F f) { return !f.s.training.recapture_at.empty(); }},
    {Trait::changing_microbatches, "changing microbatches", kSwitch,
     [](F f) { return !f.s.training.change_microbatches_at.empty(); }},
    {Trait::offload, "offload", kSwitch, [](F f) { return f.offloads(); }},
    {Trait::offload_of_a_norms_input, "offload of a norm's input", kSwitch,
     [](F f) { return f.moves(OffloadModule::attn_norm) || f.moves(OffloadModule::mlp_norm); }},
    {Trait::offload_of_a_part, "offload of a part", kSwitch,
     [](F f) { return f.offloads() && f.s.offload.fraction.millionths < 1'000'000; }},
    {Trait::offload_throttled, "offload throttled", kSwitch,
     [](F f) { return f.offloads() && f.s.offload.max_inflight; }},
    {Trait::offload_pool_slack, "offload pool slack", kSwitch,
     [](F f) { return f.s.offload.pool_slack > 0; }},
    {Trait::offload_of_large_tensors, "offload of large tensors", kSwitch,
     [](F f) { return f.s.offload.min_bytes > 0; }},
    {Trait::offload_of_experts, "offload of experts", kSwitch,
     [](F f) { return f.moves(OffloadModule::expert_fc1) || f.moves(OffloadModule::moe_act); }},
    {Trait::offload_delayed, "offload delayed", kSwitch,
     [](F f) { return f.s.offload.delay_until_cuda_graph; }},
    {Trait::several_ranks, "several ranks", kSwitch, [](F f) { return f.s.parallel.data > 1; }},
    {Trait::more_than_two_ranks, "more than two ranks", kSwitch,
     [](F f) { return f.s.parallel.data > 2; }},
    {Trait::ranks_without_shards, "ranks without shards", kSwitch,
     [](F f) { return f.s.parallel.data > 1 && !f.shards(); }},
    {Trait::shards, "shards", kSwitch, [](F f) { return f.shards(); }},
    {Trait::sharded_optimizer, "sharded optimizer", kSwitch,
     [](F f) { return f.s.fsdp.strategy == Sharding::optim; }},
    {Trait::sharded_gradients, "sharded gradients", kSwitch,
     [](F f) { return f.s.fsdp.strategy == Sharding::optim_grads; }},
    {Trait::sharded_parameters, "sharded parameters", kSwitch,
     [](F f) { return f.s.fsdp.strategy == Sharding::optim_grads_params; }},
    {Trait::shards_on_one_rank, "shards on one rank", kEdge,
     [](F f) { return f.shards() && f.s.parallel.data == 1; }},
    {Trait::several_units, "several units", kSwitch,
     [](F f) { return f.shards() && plan_sharding(f.s).units > 1; }},
    {Trait::units_of_a_list, "units of a list", kSwitch,
     [](F f) { return f.shards() && f.s.fsdp.unit_is_list; }},
    {Trait::a_persistent_buffer, "a persistent buffer", kSwitch,
     [](F f) { return f.shards() && f.has_odd_unit(); }},
    {Trait::no_persistent_buffers, "no persistent buffers", kSwitch,
     [](F f) { return f.takes_turns() && f.s.fsdp.double_buffer &&
              !f.s.fsdp.persist_buf_on_alloc_fail; }},
    {Trait::temporary_buffers, "temporary buffers", kSwitch,
     [](F f) { return f.takes_turns() && !f.s.fsdp.double_buffer; }},
    {Trait::no_prefetch, "no prefetch", kEdge,
     [](F f) { return f.gathers() && f.s.fsdp.prefetch == 0; }},
    {Trait::prefetch_of_two, "prefetch of two", kSwitch,
     [](F f) { return f.gathers() && f.s.fsdp.prefetch == 2; }},
    {Trait::a_cut_embedding, "a cut embedding", kSwitch,
     [](F f) { return f.shards() && f.s.fsdp.bucket_bytes > 0; }},
    {Trait::norms_computed_again, "norms computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::layernorm); }},
    {Trait::activations_computed_again, "activations computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::mlp_act) || f.recomputes(Recompute::moe_act); }},
    {Trait::one_in_flight, "one in flight", kEdge, [](F f) { return f.s.training.in_flight == 1; }},
    {Trait::three_in_flight, "three in flight", kSwitch,
     [](F f) { return f.s.training.in_flight >= 3; }},
    {Trait::learning_rate_schedule, "learning rate schedule", kSwitch,
     [](F f) { return f.s.training.optimizer.schedule != LrSchedule::constant; }},
    {Trait::no_clipping, "no clipping", kEdge, [](F f) { return f.optimizer().clip == 0; }},
    {Trait::clipping_by_another_norm, "clipping by another norm", kSwitch,
     [](F f) { return f.optimizer().clip > 0 &&
              f.optimizer().clip != kPlain.training.optimizer.clip; }},
    {Trait::another_learning_rate, "another learning rate", kSwitch,
     [](F f) { return f.optimizer().lr > 0 && f.optimizer().lr != kPlain.training.optimizer.lr; }},
    {Trait::no_learning, "no learning", kEdge, [](F f) { return f.optimizer().lr == 0; }},
    {Trait::another_weight_decay, "another weight decay", kSwitch,
     [](F f) {
       return f.optimizer().weight_decay > 0 &&
              f.optimizer().weight_decay != kPlain.training.optimizer.weight_decay;
     }},
    {Trait::no_weight_decay, "no weight decay", kEdge,
     [](F f) { return f.optimizer().weight_decay == 0; }},
    {Trait::other_betas, "other betas", kSwitch,
     [](F f) {
       return f.optimizer().beta1 != kPlain.training.optimizer.beta1 ||
              f.optimizer().beta2 != kPlain.training.optimizer.beta2;
     }},
    {Trait::a_beta_of_zero, "a beta of zero", kEdge,
     [](F f) { return f.optimizer().beta1 == 0 || f.optimizer().beta2 == 0; }},
    {Trait::another_epsilon_of_the_optimizer, "another epsilon of the optimizer", kSwitch,
     [](F f) { return f.optimizer().eps != kPlain.training.optimizer.eps; }},
    {Trait::another_epsilon_of_norms, "another epsilon of norms", kSwitch,
     [](F f) { return f.s.model.norm_eps != kPlain.model.norm_eps; }},
    {Trait::another_base_of_rotations, "another base of rotations", kSwitch,
     [](F f) {
       return f.layer("*") && f.s.model.attention.rope_base != kPlain.model.attention.rope_base;
     }},
    {Trait::a_seed_over_32_bits, "a seed over 32 bits", kSwitch,
     [](F f) { return f.training().seed >> 32 > 0; }},
    {Trait::the_largest_seed, "the largest seed", kEdge,
     [](F f) { return f.training().seed == kMostSeed; }},
    {Trait::a_schedules_seed_over_32_bits, "a schedule's seed over 32 bits", kSwitch,
     [](F f) { return f.s.checker.schedule.seed >> 32 > 0; }},
    {Trait::one_step, "one step", kEdge, [](F f) { return f.training().steps == 1; }},
    {Trait::two_steps, "two steps", kEdge, [](F f) { return f.training().steps == 2; }},
    {Trait::more_than_five_steps, "more than five steps", kSwitch,
     [](F f) { return f.training().steps > 5; }},
    {Trait::more_than_four_microbatches, "more than four microbatches", kSwitch,
     [](F f) { return most_microbatches(f.training()) > 4; }},
    {Trait::more_than_four_in_flight, "more than four in flight", kSwitch,
     [](F f) { return f.training().in_flight > 4; }},
    {Trait::two_changes_of_the_count, "two changes of the count", kSwitch,
     [](F f) { return f.training().change_microbatches_at.size() > 1; }},
    {Trait::two_recaptures, "two recaptures", kSwitch,
     [](F f) { return f.training().recapture_at.size() > 1; }},
    {Trait::more_than_two_buckets, "more than two buckets", kSwitch,
     [](F f) { return f.graphs() && f.s.cuda_graph.max_packed_seqs.size() > 2; }},
    {Trait::more_than_four_ranks, "more than four ranks", kSwitch,
     [](F f) { return f.s.parallel.data > 4; }},
    {Trait::ranks_asked_to_be_local, "ranks asked to be local", kSwitch,
     [](F f) { return f.s.parallel.transport == Transport::local; }},
    {Trait::wide_heads_of_attention, "wide heads of attention", kSwitch,
     [](F f) { return f.layer("*") && f.s.model.attention.head_dim >= 64; }},
    {Trait::a_wide_state, "a wide state", kSwitch,
     [](F f) { return f.layer("M") && f.s.model.mamba.state >= 64; }},
    {Trait::the_widest_convolution, "the widest convolution", kEdge,
     [](F f) { return f.layer("M") && f.s.model.mamba.conv_width == 8; }},
    {Trait::a_pack_over_128, "a pack over 128", kSwitch,
     [](F f) { return f.s.data.pack_length > 128; }},
    {Trait::more_than_24_documents, "more than 24 documents", kSwitch,
     [](F f) { return f.most > 24; }},
    {Trait::truncated_document, "truncated document", kSwitch,
     [](F f) { return !f.lengths.empty() && *f.lengths.rbegin() > f.s.data.pack_length; }},
    {Trait::several_masked_microbatches, "several masked microbatches", kSwitch,
     [](F f) { return f.s.data.mask.microbatches.size() > 1; }},
    {Trait::lengths_drawn_uniformly, "lengths drawn uniformly", kSwitch,
     [](F f) { return f.draws(Shape::uniform); }},
    {Trait::lengths_drawn_lognormally, "lengths drawn lognormally", kSwitch,
     [](F f) { return f.draws(Shape::lognormal); }},
    {Trait::equal_lengths, "equal lengths", kSwitch, [](F f) { return f.draws(Shape::equal); }},
    {Trait::one_giant_document, "one giant document", kSwitch,
     [](F f) { return f.draws(Shape::one_giant); }},
    {Trait::many_tiny_documents, "many tiny documents", kSwitch,
     [](F f) { return f.draws(Shape::many_tiny); }},
    {Trait::measured_counts_of_documents, "measured counts of documents", kSwitch,
     [](F f) { return f.draws(Shape::measured); }},
    {Trait::empty_document, "empty document", kEdge, [](F f) { return f.lengths.contains(0); }},
    {Trait::one_token, "one token", kEdge, [](F f) { return f.lengths.contains(1); }},
    {Trait::two_tokens, "two tokens", kEdge, [](F f) { return f.lengths.contains(2); }},
    {Trait::conv_width_minus_1, "conv width - 1", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width - 1); }},
    {Trait::conv_width, "conv width", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width); }},
    {Trait::conv_width_plus_1, "conv width + 1", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.conv_width + 1); }},
    {Trait::chunk_minus_1, "chunk - 1", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk - 1); }},
    {Trait::chunk, "chunk", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk); }},
    {Trait::chunk_plus_1, "chunk + 1", kEdge,
     [](F f) { return f.layer("M") && f.lengths.contains(f.s.model.mamba.chunk + 1); }},
    {Trait::a_full_pack, "a full pack", kEdge,
     [](F f) { return f.lengths.contains(f.s.data.pack_length); }},
    {Trait::no_document, "no document", kEdge, [](F f) { return f.least == 0; }},
    {Trait::capacity_minus_1, "capacity - 1", kEdge, [](F f) { return f.over.contains(-1); }},
    {Trait::capacity, "capacity", kEdge, [](F f) { return f.over.contains(0); }},
    {Trait::capacity_plus_1, "capacity + 1", kEdge, [](F f) { return f.over.contains(1); }},
    {Trait::delays, "delays", kSwitch, [](F f) { return !f.s.checker.delays.empty(); }},
    {Trait::delays_in_graphs, "delays in graphs", kSwitch,
     [](F f) { return f.delays(DelayStream::graph); }},
    {Trait::delays_of_exchanges, "delays of exchanges", kSwitch,
     [](F f) { return f.delays(DelayStream::gather) || f.delays(DelayStream::reduce); }},
    {Trait::delays_of_one_rank, "delays of one rank", kSwitch,
     [](F f) {
       return std::any_of(f.s.checker.delays.begin(), f.s.checker.delays.end(),
                          [](const Scenario::Delay& delay) { return delay.rank.has_value(); });
     }},
    {Trait::checker_off, "checker off", kSwitch, [](F f) { return !f.s.checker.hazards; }},
    {Trait::fresh_memory_not_poisoned, "fresh memory not poisoned", kSwitch,
     [](F f) { return !f.poisons(Poison::fresh); }},
    {Trait::schedule_by_priorities, "schedule by priorities", kSwitch,
     [](F f) { return f.s.checker.schedule.kind == ScheduleKind::pct; }},
    {Trait::the_programs_own_schedule, "the program's own schedule", kSwitch,
     [](F f) { return f.s.checker.schedule.kind == ScheduleKind::program; }},
    {Trait::poisoned_padding, "poisoned padding", kSwitch,
     [](F f) { return f.poisons(Poison::padding); }},
    {Trait::poisoned_staging, "poisoned staging", kSwitch,
     [](F f) { return f.poisons(Poison::staging); }},
    {Trait::bounded_documents, "bounded documents", kSwitch,
     [](F f) { return f.graphs() && longest_captured(f.s) < f.s.data.pack_length; }},
    {Trait::a_document_over_the_bound, "a document over the bound", kEdge,
     [](F f) { return f.graphs() && f.is_too_long; }},
    {Trait::evaluation_by_graphs, "evaluation by graphs", kSwitch,
     [](F f) { return f.s.cuda_graph.evaluation == GraphEvaluation::replay; }},
    {Trait::attention_computed_again, "attention computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::core_attn); }},
    {Trait::mlps_computed_again, "mlps computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::mlp); }},
    {Trait::mambas_computed_again, "mambas computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::mamba); }},
    {Trait::experts_computed_again, "experts computed again", kSwitch,
     [](F f) { return f.recomputes(Recompute::moe); }},
    {Trait::offload_captured, "offload captured", kSwitch,
     [](F f) { return f.s.offload.captured; }},
    {Trait::passes_of_captures, "passes of captures", kSwitch,
     [](F f) { return f.s.cuda_graph.capture_passes > 0; }},
    {Trait::published_counts_of_documents, "published counts of documents", kSwitch,
     [](F f) { return f.draws(Shape::published); }},
    {Trait::a_histogram_of_documents, "a histogram of documents", kSwitch,
     [](F f) { return f.draws(Shape::histogram); }},
    {Trait::resumed, "resumed", kSwitch, [](F f) { return !f.training().resume_at.empty(); }},
    {Trait::resumed_within_a_step, "resumed within a step", kSwitch,
     [](F f) { return f.resumes([](auto& one) { return one.microbatch > 0; }); }},
    {Trait::resumed_on_other_ranks, "resumed on other ranks", kSwitch,
     [](F f) { return f.resumes([&](auto& one) {
       return one.data != 0 && one.data != f.s.parallel.data; }); }},
    {Trait::more_than_64_layers, "more than 64 layers", kRare,
     [](F f) { return f.s.model.pattern.size() > 64; }},
    {Trait::more_than_255_documents, "more than 255 documents with dropout", kRare,
     [](F f) { return f.most > 255 && f.s.model.dropout.millionths > 0; }},
    {Trait::a_bucket_at_a_power_of_two, "a bucket at a power of two, filled", kRare,
     [](F f) { return f.graphs() && f.fills_a_power_of_two; }},
    {Trait::recapture_under_a_limit, "recapture under a limit", kRare,
     [](F f) { return f.buckets() && f.s.cuda_graph.graph_memory_limit > 0 &&
              !f.training().recapture_at.empty(); }},
    {Trait::evaluation_with_buckets, "evaluation with buckets", kRare,
     [](F f) { return f.buckets() && f.training().eval_every > 0; }},
    {Trait::a_vocabulary_over_16_bits, "a vocabulary over 16 bits", kRare,
     [](F f) { return f.s.model.vocab > 65'536; }},
    {Trait::a_vocabulary_of_two, "a vocabulary of two", kRare,
     [](F f) { return f.s.model.vocab == 2; }},
    {Trait::the_most_experts, "the most experts", kRare,
     [](F f) { return f.layer("E") && f.moe().experts == 256; }},
    {Trait::shared_memory_of_graphs, "shared memory of graphs", kSwitch,
     [](F f) { return f.s.cuda_graph.shared_memory; }},
    {Trait::ranks_in_processes, "ranks in processes", kOutside,
     [](F f) { return ranks_of_run(f.s) > 1 && f.s.parallel.transport == Transport::shm; }},
    {Trait::ranks_over_nccl, "ranks over NCCL", kOutside,
     [](F f) { return ranks_of_run(f.s) > 1 && f.s.parallel.transport == Transport::nccl; }},
    {Trait::attention_by_cudnn, "attention by cuDNN", kOutside,
     [](F f) { return f.layer("*") && f.s.model.core_attention == CoreAttention::cudnn; }},
    {Trait::fp8, "fp8", kSwitch, [](F f) { return multiplies_fp8(f.s); }},
    {Trait::an_input_saved_beside_fp8, "an input saved beside fp8", kSwitch,
     [](F f) { return multiplies_fp8(f.s) &&
              f.s.fp8.save_original_input != implied_original_inputs(f.s.model); }},
    {Trait::uncached_fp8_weights, "uncached fp8 weights", kSwitch,
     [](F f) { return multiplies_fp8(f.s) && !f.s.fp8.weight_cache; }},
    {Trait::delayed_exponents, "delayed exponents", kSwitch,
     [](F f) { return multiplies_fp8(f.s) && f.s.fp8.recipe == Fp8Recipe::delayed; }},
    {Trait::gathered_fp8_codes, "gathered fp8 codes", kSwitch,
     [](F f) { return gathers_fp8_codes(f.s); }},
    {Trait::several_chunks, "several chunks", kSwitch,
     [](F f) { return f.s.parallel.chunks > 1; }},
    {Trait::groups_of_chunks, "groups of chunks", kSwitch,
     [](F f) { return f.s.parallel.chunks > 1 && f.s.parallel.group > 1; }},
    {Trait::gpipe, "gpipe", kSwitch,
     [](F f) { return f.s.parallel.schedule == PipelineSchedule::gpipe; }},
    {Trait::experts_in_fp8, "experts in fp8", kRare,
     [](F f) { return multiplies_fp8(f.s) && f.layer("E"); }},
    {Trait::the_last_amax_alone, "the last amax alone", kRare,
     [](F f) { return f.delays_exponents() && f.s.fp8.algorithm == Fp8Algorithm::most_recent; }},
    {Trait::a_margin_of_exponents, "a margin of exponents", kRare,
     [](F f) { return f.delays_exponents() && f.s.fp8.margin > 0; }},
    {Trait::fp8_sums_of_several_runs, "fp8 sums of several runs", kRare,
     [](F f) { return multiplies_fp8(f.s) && f.has_long_sums(); }},
    {Trait::capped_exponents, "capped exponents", kRare,
     [](F f) { return multiplies_fp8(f.s) && f.training().steps >= 4 &&
              f.optimizer().lr == 1.0e-12 && f.optimizer().weight_decay == 1.0e12; }},
    {Trait::saturated_codes, "saturated codes", kRare,
     [](F f) { return f.delays_exponents() && f.training().steps >= 3 &&
              f.s.fp8.margin == 0 && f.optimizer().lr >= 0.05; }},
    {Trait::an_empty_fp8_segment, "an empty fp8 segment", kRare,
     [](F f) { return multiplies_fp8(f.s) &&
              (f.fewest_tokens == 0 ||
               (f.layer("E") && f.fewest_tokens * f.moe().top_k < f.moe().experts)); }},
    {Trait::a_zero_fp8_operand, "a zero fp8 operand", kRare,
     [](F f) { return multiplies_fp8(f.s) && f.most_tokens > 0 &&
              !f.s.data.mask.microbatches.empty(); }},
    {Trait::several_stages, "several stages", kSwitch,
     [](F f) { return f.s.parallel.pipeline > 1; }},
    {Trait::stages_with_chunks, "stages with chunks", kSwitch,
     [](F f) { return f.s.parallel.pipeline > 1 && f.s.parallel.chunks > 1; }},
    {Trait::saves_qkv_linear, "input of qkv_linear saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::qkv_linear); }},
    {Trait::saves_attn_proj, "input of attn_proj saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::attn_proj); }},
    {Trait::saves_mlp_fc1, "input of mlp_fc1 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::mlp_fc1); }},
    {Trait::saves_mlp_fc2, "input of mlp_fc2 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::mlp_fc2); }},
    {Trait::saves_mamba_in_proj, "input of mamba_in_proj saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::mamba_in_proj); }},
    {Trait::saves_mamba_out_proj, "input of mamba_out_proj saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::mamba_out_proj); }},
    {Trait::saves_expert_fc1, "input of expert_fc1 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::expert_fc1); }},
    {Trait::saves_expert_fc2, "input of expert_fc2 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::expert_fc2); }},
    {Trait::saves_shared_fc1, "input of shared_fc1 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::shared_fc1); }},
    {Trait::saves_shared_fc2, "input of shared_fc2 saved in fp8", kRare,
     [](F f) { return f.saves(Fp8Layer::shared_fc2); }},
    {Trait::a_history_of_one, "a history of one amax", kRare,
     [](F f) { return f.delays_exponents() && f.s.fp8.history == 1; }},
    {Trait::a_history_of_many, "a history of more amaxes than steps", kRare,
     [](F f) { return f.delays_exponents() && f.s.fp8.history > f.training().steps; }},
    {Trait::experts_apart, "experts over ranks", kRare,
     [](F f) { return expert_ranks(f.s) > 1; }},
    {Trait::experts_in_replicas, "replicas of experts over ranks", kRare,
     [](F f) { return expert_ranks(f.s) > 1 && expert_replicas(f.s) > 1; }},
    {Trait::captured_exchanges, "exchanges of rows in graphs", kOutside,
     [](F f) { return captures_exchange(f.s); }},
    {Trait::experts_apart_in_fp8, "experts over ranks in fp8", kRare,
     [](F f) { return multiplies_fp8(f.s) && expert_ranks(f.s) > 1; }},
    {Trait::offload_of_experts_apart, "offload of experts over ranks", kRare,
     [](F f) { return expert_ranks(f.s) > 1 &&
               (f.moves(OffloadModule::expert_fc1) || f.moves(OffloadModule::moe_act)); }},
    {Trait::experts_apart_in_shared_memory, "experts over ranks in shared memory", kRare,
     [](F f) { return expert_ranks(f.s) > 1 && f.s.cuda_graph.shared_memory; }},
    {Trait::offload_of_less_in_later_stages, "offload of less in later stages", kRare,
     [](F f) { return f.offloads() && f.s.parallel.pipeline > 1 &&
              f.s.offload.delta_bytes > 0; }},
    {Trait::stages_in_the_graph_of_a_step, "stages in the graph of a step", kOutside,
     [](F f) { return f.s.parallel.pipeline > 1 &&
              f.s.cuda_graph.impl == GraphImpl::full_iteration; }},
    {Trait::shared_memory_of_chunks, "shared memory of chunks", kRare,
     [](F f) { return f.s.cuda_graph.shared_memory && f.s.parallel.chunks > 1; }},
    {Trait::shared_memory_of_stages, "shared memory of stages", kRare,
     [](F f) { return f.s.cuda_graph.shared_memory && f.s.parallel.pipeline > 1; }},
};
// clang-format on
static_assert(std::size(kRows) <= kMostTraits);

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].trait != static_cast<Trait>(i)) return false;
  }
  return std::size(kRows) == static_cast<std::size_t>(Trait::shared_memory_of_stages) + 1;
}
static_assert(is_in_order(), "a row for each trait, in the order of the enumeration");
// Campaign files of before have a trait's bit where it was.
static_assert(static_cast<int>(Trait::shared_memory_of_stages) == 201, "a new trait goes last");

}  // namespace

const std::vector<TraitName>& trait_names() {
  static const std::vector<TraitName> names = [] {
    std::vector<TraitName> list;
    for (const Row& row : kRows) {
      const bool alone = row.kind == kRare || row.kind == kOutside;
      list.push_back({row.name, row.kind == kEdge, alone});
    }
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

std::string to_hex(const Traits& traits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (std::size_t i = 0; i < trait_names().size(); i += 4) {
    int digit = 0;
    for (std::size_t bit = 0; bit < 4 && i + bit < kMostTraits; ++bit)
      digit |= traits[i + bit] << bit;
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
