// Pairs of traits that no legal scenario has together.
#include <vector>

#include "harness/generate/features.h"
#include "harness/generate/traits.h"

namespace lockstep {
namespace {

using enum Trait;

// A trait and those that it excludes.
struct Exclusion {
  Trait one;
  std::vector<Trait> others;
};

const std::vector<Exclusion>& exclusions() {
  static const std::vector<Exclusion> list{
      {no_graphs,
       {partial_graphs,
        full_iteration,
        module_attn,
        module_mlp,
        module_mamba,
        module_moe,
        module_moe_router,
        module_moe_preprocess,
        two_modules,
        buckets,
        more_than_two_buckets,
        no_warm_up,
        long_warm_up,
        recapture,
        two_recaptures,
        capacity_minus_1,
        capacity,
        capacity_plus_1,
        delays_in_graphs,
        offload_delayed,
        a_limit_of_graphs,
        bounded_documents,
        a_document_over_the_bound,
        evaluation_by_graphs,
        offload_captured,
        passes_of_captures}},
      {full_iteration,
       {partial_graphs, module_attn, module_mlp, module_mamba, module_moe, module_moe_router,
        module_moe_preprocess, two_modules, host_sync, offload_delayed, several_ranks,
        more_than_two_ranks, more_than_four_ranks, ranks_asked_to_be_local, ranks_without_shards,
        delays_of_one_rank, evaluation_by_graphs, offload_captured, passes_of_captures}},
      {module_moe, {module_moe_router, module_moe_preprocess, host_sync, offload_delayed}},
      {module_moe_preprocess, {capacity_without_padding, host_sync}},
      {dropless, {capacity_without_padding}},
      // Top-k is at most 16, and there are at least two experts.
      {every_expert_chosen, {more_experts_than_lanes, one_slot}},
      {no_warm_up,
       {long_warm_up, offload, offload_of_a_norms_input, offload_of_a_part, offload_throttled,
        offload_pool_slack, offload_of_large_tensors, offload_of_experts, offload_delayed,
        offload_captured}},
      {offload_pool_slack, {offload_captured}},
      {shared_memory_of_graphs, {no_graphs, full_iteration, temporary_buffers}},
      {resumed_within_a_step, {ranks_without_shards, sharded_optimizer}},
      // L37: several ranks lie in no graph of everything.
      {resumed_on_other_ranks, {ranks_without_shards, sharded_optimizer, full_iteration}},
      {one_in_flight, {three_in_flight, more_than_four_in_flight}},
      {one_step,
       {two_steps, more_than_five_steps, long_warm_up, recapture, two_recaptures,
        changing_microbatches, two_changes_of_the_count, offload, offload_of_a_norms_input,
        offload_of_a_part, offload_throttled, offload_pool_slack, offload_of_large_tensors,
        offload_of_experts, offload_delayed, offload_captured}},
      {two_steps, {more_than_five_steps, long_warm_up, two_recaptures, two_changes_of_the_count}},
      {no_clipping, {clipping_by_another_norm}},
      {no_learning, {another_learning_rate}},
      {no_weight_decay, {another_weight_decay}},
      {schedule_by_priorities, {the_programs_own_schedule}},
      {ranks_without_shards,
       {shards, sharded_optimizer, sharded_gradients, sharded_parameters, shards_on_one_rank,
        several_units, units_of_a_list, a_persistent_buffer, no_persistent_buffers,
        temporary_buffers, no_prefetch, prefetch_of_two, a_cut_embedding, delays_of_exchanges}},
      {sharded_optimizer,
       {sharded_gradients, sharded_parameters, a_persistent_buffer, no_persistent_buffers,
        temporary_buffers, no_prefetch, prefetch_of_two}},
      {sharded_gradients, {sharded_parameters, no_prefetch, prefetch_of_two}},
      {no_persistent_buffers, {temporary_buffers, prefetch_of_two}},
      {shards_on_one_rank,
       {several_ranks, more_than_two_ranks, more_than_four_ranks, ranks_asked_to_be_local,
        delays_of_one_rank}},
      {a_persistent_buffer, {no_persistent_buffers, temporary_buffers}},
      {no_prefetch, {prefetch_of_two}},
      {temporary_buffers,
       {partial_graphs, module_attn, module_mlp, module_mamba, module_moe, module_moe_router,
        module_moe_preprocess, two_modules, offload_delayed, evaluation_by_graphs, offload_captured,
        passes_of_captures}},
      {experts_computed_again, {offload_of_experts, offload_delayed}},
      // Where no document fits, nothing is replayed.
      {equal_lengths, {a_document_over_the_bound}},
      // Gap rows leave no room for such a document.
      {gaps, {a_full_pack, truncated_document}},
  };
  return list;
}

// Lengths come from one shape, or from lists.
constexpr Trait kShapes[] = {lengths_drawn_uniformly,
                             lengths_drawn_lognormally,
                             equal_lengths,
                             one_giant_document,
                             many_tiny_documents,
                             measured_counts_of_documents,
                             published_counts_of_documents,
                             a_histogram_of_documents};

constexpr std::size_t pair_of(Trait one, Trait other) {
  return static_cast<std::size_t>(one) * kMostTraits + static_cast<std::size_t>(other);
}

// Several stages lie in no graph of everything where they are ranks of one process (L37), or have
// no room for so many ranks.
constexpr Trait kWithoutStages[] = {full_iteration, more_than_four_ranks};

std::vector<bool> excluded_pairs() {
  std::vector<bool> excluded(kMostTraits * kMostTraits);
  const auto exclude = [&](Trait one, Trait other) {
    excluded[pair_of(one, other)] = excluded[pair_of(other, one)] = true;
  };
  for (const Exclusion& exclusion : exclusions()) {
    for (const Trait other : exclusion.others) exclude(exclusion.one, other);
  }
  exclude(delayed_exponents, no_warm_up);  // L46.
  for (const Trait of_fp8 : {fp8, an_input_saved_beside_fp8, uncached_fp8_weights,
                             delayed_exponents, gathered_fp8_codes})
    exclude(of_fp8, bf16);
  exclude(gathered_fp8_codes, uncached_fp8_weights);
  exclude(gathered_fp8_codes, ranks_without_shards);
  exclude(groups_of_chunks, one_in_flight);
  for (const Trait other : kWithoutStages) {
    exclude(several_stages, other);
    exclude(stages_with_chunks, other);
  }
  exclude(stages_with_chunks, one_in_flight);
  for (const Trait shape : kShapes) {
    exclude(shape, truncated_document);
    if (shape != a_histogram_of_documents) exclude(shape, no_document);
    for (const Trait other : kShapes) {
      if (other != shape) exclude(shape, other);
    }
  }
  return excluded;
}

}  // namespace

bool can_meet(std::size_t a, std::size_t b) {
  static const std::vector<bool> excluded = excluded_pairs();
  return a != b && !excluded[a * kMostTraits + b];
}

}  // namespace lockstep
