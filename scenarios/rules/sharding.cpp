// L32..L37: units, buffers and ranks.
#include <numeric>

#include "scenarios/expert_ranks.h"
#include "scenarios/fsdp_units.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

// Elements of a symbol's parameters, arithmetic.md section 0.5.
std::int64_t parameters(const Scenario::Model& model, char symbol) {
  const std::int64_t d = model.hidden;
  const std::int64_t factor = model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
  const auto mlp = [&](std::int64_t width) { return factor * width * d + d * width; };
  switch (symbol) {
    case 'M': {
      const auto& m = model.mamba;
      const std::int64_t heads = m.d_inner / m.head_dim,
                         channels = m.d_inner + 2 * m.groups * m.state;
      return d + (m.d_inner + channels + heads) * d + channels * (m.conv_width + 1) + 3 * heads +
             m.d_inner + d * m.d_inner;
    }
    case '*': {
      const auto& a = model.attention;
      return d + (a.heads + 2 * a.kv_heads) * a.head_dim * d + d * a.heads * a.head_dim;
    }
    case '-':
      return d + mlp(model.mlp.hidden);
    default:
      return d + model.moe.experts * d + model.moe.experts * mlp(model.moe.hidden) +
             mlp(model.moe.shared_hidden);
  }
}

std::int64_t sum(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

// Elements of each unit.
std::vector<std::int64_t> unit_sizes(const Scenario& scenario) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::vector<std::int64_t> sizes;
  std::size_t block = 0;
  for (const std::int64_t count : blocks_of_units(scenario)) {
    sizes.push_back(0);
    for (std::int64_t b = 0; b < count && block < blocks.size(); ++b, ++block) {
      for (int i = 0; i < blocks[block].count; ++i) {
        sizes.back() += parameters(scenario.model, scenario.model.pattern[blocks[block].first + i]);
      }
    }
  }
  return sizes;
}

bool units_cover_the_blocks(const Scenario& scenario) {
  return !scenario.fsdp.unit_is_list || sum(scenario.fsdp.unit) == std::ssize(scenario.blocks());
}

Findings graphs_need_double_buffers(const Scenario& scenario) {
  if (!with_partial_graphs(scenario) || !with_sharding(scenario) || scenario.fsdp.double_buffer)
    return {};
  return {{"fsdp.double_buffer", "true", ""}};
}

// The pool's class has the most units; of several such classes, the first in the model.
Findings units_fit_the_pool(const Scenario& scenario) {
  const bool asked = with_partial_graphs(scenario) && with_sharding(scenario) &&
                     scenario.fsdp.double_buffer && !scenario.fsdp.persist_buf_on_alloc_fail;
  if (!asked || !units_cover_the_blocks(scenario)) return {};
  const std::vector<std::int64_t> sizes = unit_sizes(scenario);
  const auto members = [&](std::int64_t size) {
    return std::count(sizes.begin(), sizes.end(), size);
  };
  const std::int64_t pooled =
      *std::max_element(sizes.begin(), sizes.end(),
                        [&](std::int64_t a, std::int64_t b) { return members(a) < members(b); });
  for (std::size_t u = 0; u < sizes.size(); ++u) {
    if (sizes[u] == pooled) continue;
    return {{"fsdp.persist_buf_on_alloc_fail", "true",
             "unit " + to_string(u) + " has " + to_string(sizes[u]) +
                 " parameters, the pool's class " + to_string(pooled)}};
  }
  return {};
}

Findings three_units_need_a_third_buffer(const Scenario& scenario) {
  const auto& fsdp = scenario.fsdp;
  if (!with_sharding(scenario) || !fsdp.double_buffer || fsdp.prefetch < 2 ||
      fsdp.persist_buf_on_alloc_fail)
    return {};
  return {{"fsdp.prefetch", "1", to_string(fsdp.prefetch)}};
}

Findings unit_list_sums_to_the_blocks(const Scenario& scenario) {
  if (!with_sharding(scenario) || units_cover_the_blocks(scenario)) return {};
  std::vector<std::int64_t> units;
  std::int64_t left = std::ssize(scenario.blocks());
  for (const std::int64_t unit : scenario.fsdp.unit) {
    if (left == 0) break;
    units.push_back(std::min(unit, left));
    left -= units.back();
  }
  if (left > 0) units.push_back(left);
  return {
      {"fsdp.unit", list_text(units),
       "sum " + to_string(sum(scenario.fsdp.unit)) + " of " + to_string(scenario.blocks().size())}};
}

// The list with a cut where a piece ends.
Findings units_lie_in_one_piece(const Scenario& scenario) {
  const Scenario::Parallel& parallel = scenario.parallel;
  const std::int64_t pieces = parallel.pipeline * parallel.chunks;
  if (!with_sharding(scenario) || !scenario.fsdp.unit_is_list || pieces == 1) return {};
  if (!units_cover_the_blocks(scenario) || pieces > std::ssize(scenario.blocks())) return {};
  std::vector<std::int64_t> units;
  auto unit = scenario.fsdp.unit.begin();
  std::int64_t of_unit = *unit;
  for (std::int64_t left : blocks_of_pieces(std::ssize(scenario.blocks()), pieces)) {
    while (left > 0) {
      units.push_back(std::min(left, of_unit));
      left -= units.back();
      of_unit -= units.back();
      if (of_unit == 0 && ++unit != scenario.fsdp.unit.end()) of_unit = *unit;
    }
  }
  if (units == scenario.fsdp.unit) return {};
  return {{"fsdp.unit", list_text(units), list_text(scenario.fsdp.unit)}};
}

Findings library_sum_needs_the_library(const Scenario& scenario) {
  const bool asked = with_reduction(scenario) && scenario.fsdp.reduction == Reduction::nccl;
  if (!asked || scenario.parallel.transport == Transport::nccl) return {};
  return {{"parallel.transport", "nccl", word(scenario.parallel.transport)}};
}

Findings full_graphs_need_processes(const Scenario& scenario) {
  const Transport transport = scenario.parallel.transport;
  const std::int64_t ranks = all_ranks(scenario);
  if (scenario.cuda_graph.impl != GraphImpl::full_iteration || ranks == 1) return {};
  if (transport == Transport::shm || transport == Transport::nccl) return {};
  return {{"parallel.transport", "shm", word(transport) + " with " + to_string(ranks) + " ranks"}};
}

Findings captured_exchanges_need_processes(const Scenario& scenario) {
  const Transport transport = scenario.parallel.transport;
  if (!with_partial_graphs(scenario) || !captures_exchange(scenario)) return {};
  if (transport == Transport::shm || transport == Transport::nccl) return {};
  return {{"parallel.transport", "shm",
           word(transport) + " with expert " + to_string(expert_ranks(scenario))}};
}

}  // namespace

std::span<const Rule> sharding_rules() {
  static constexpr Rule kRules[] = {
      {"L32", "partial with a strategy other than no_shard needs double_buffer",
       "temporary buffers move; graphs bake addresses", graphs_need_double_buffers,
       "fsdp.double_buffer fsdp.strategy cuda_graph.impl",
       "fsdp: {strategy: optim, double_buffer: false}"},
      {"L33", "partial, sharded, without persist_buf_on_alloc_fail: a unit does not fit the pool",
       "pool = the largest class of units equal in size and dtype, two live; a miss would move an "
       "address",
       units_fit_the_pool,
       "fsdp.persist_buf_on_alloc_fail fsdp.strategy fsdp.unit cuda_graph.impl model.pattern",
       "model: {pattern: \"M*-M\"}, fsdp: {strategy: optim_grads_params, unit: 2, "
       "persist_buf_on_alloc_fail: false}"},
      {"L34", "double_buffer with prefetch 2 needs persist_buf_on_alloc_fail",
       "three units live in two slots", three_units_need_a_third_buffer,
       "fsdp.prefetch fsdp.double_buffer fsdp.persist_buf_on_alloc_fail",
       "cuda_graph: {impl: none}, fsdp: {strategy: optim_grads_params, prefetch: 2, "
       "persist_buf_on_alloc_fail: false}"},
      {"L35", "a unit list must sum to the number of blocks", "every block has one unit",
       unit_list_sums_to_the_blocks, "fsdp.unit model.pattern",
       "fsdp: {strategy: optim, unit: [1]}"},
      {"L35", "a unit of a list must not lie in two pieces of the model",
       "a unit is used by the passes of one chunk", units_lie_in_one_piece,
       "fsdp.unit parallel.pipeline parallel.chunks model.pattern",
       "fsdp: {strategy: optim, unit: [2]}, parallel: {chunks: 2, schedule: interleaved}"},
      {"L36", "reduction nccl needs transport nccl",
       "no other has the library's sum; auto is not enough", library_sum_needs_the_library,
       "fsdp.reduction fsdp.strategy parallel.transport",
       "fsdp: {strategy: optim, reduction: nccl}"},
      {"L37", "full_iteration with several ranks needs transport shm or nccl",
       "ranks of one process would wait for each other inside a capture",
       full_graphs_need_processes, "cuda_graph.impl parallel",
       "cuda_graph: {impl: full_iteration}, parallel: {data: 2}"},
      {"L37", "experts in a graph with expert above 1 need transport shm or nccl",
       "the graph would hold the exchange of rows, and ranks of one process would wait for each "
       "other inside a capture",
       captured_exchanges_need_processes,
       "cuda_graph.impl cuda_graph.modules model.pattern parallel.expert parallel.transport",
       "model: {pattern: \"*E\"}, parallel: {data: 2, expert: 2}"},
  };
  return kRules;
}

}  // namespace lockstep
