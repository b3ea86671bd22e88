#include "harness/expect/sharding_plan.h"

#include <algorithm>

#include "harness/expect/expectations.h"
#include "kernels/core/at.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using Sharding::no_shard, Sharding::optim_grads, Sharding::optim_grads_params;

// Weights of products have a bf16 copy; gains, the convolution, the scan's vectors and the router
// are read as they are.
bool has_copy(const ParameterShape& p) {
  return p.name.ends_with(".weight") && !p.name.ends_with("conv.weight") &&
         !p.name.ends_with("router.weight");
}

// Blocks of each unit. Without sharding every block is one: `fsdp.unit` is then without effect.
std::vector<std::int64_t> unit_sizes(const Scenario& scenario) {
  const Scenario::Fsdp& fsdp = scenario.fsdp;
  const std::int64_t blocks = std::ssize(scenario.blocks()), pieces = pieces_of(scenario);
  if (fsdp.strategy != no_shard && fsdp.unit_is_list) return fsdp.unit;
  const std::int64_t size = fsdp.strategy == no_shard ? 1 : fsdp.unit.front();
  std::vector<std::int64_t> sizes;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t own = blocks / pieces + (piece < blocks % pieces ? 1 : 0);
    for (std::int64_t left = own; left > 0; left -= size) sizes.push_back(std::min(left, size));
  }
  return sizes;
}

// Unit of each symbol of the pattern.
std::vector<int> units_of_symbols(const Scenario& scenario) {
  std::vector<int> units;
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const std::vector<std::int64_t> sizes = unit_sizes(scenario);
  std::size_t block = 0;
  for (std::size_t unit = 0; unit < sizes.size(); ++unit) {
    for (std::int64_t b = 0; b < sizes[unit] && block < blocks.size(); ++b, ++block) {
      units.insert(units.end(), blocks[block].count, static_cast<int>(unit));
    }
  }
  return units;
}

class Planner {
 public:
  explicit Planner(const Scenario& scenario)
      : scenario_(scenario), narrow_(stores_bf16(scenario)), units_(units_of_symbols(scenario)) {}

  ShardingPlan plan() {
    plan_.units = units_.empty() ? 0 : units_.back() + 1;
    const std::vector<ParameterShape> parameters = parameter_table(scenario_);
    for (const ParameterShape& p : parameters) {
      if (p.name == "embedding.weight") add_rows("embedding", p);
    }
    for (const bool copied : {true, false}) {
      for (const ParameterShape& p : parameters) {
        if (p.layer >= 0 && reads_copy(p) == copied) add_to_unit(p, at(units_, p.layer), copied);
      }
    }
    std::stable_sort(
        plan_.buckets.begin(), plan_.buckets.end(),
        [](const PlannedBucket& a, const PlannedBucket& b) { return a.unit < b.unit; });
    for (const ParameterShape& p : parameters) {
      if (p.name == "final_norm.gain")
        plan_.buckets.push_back({"final norm", -1, false, p.count()});
      if (p.name == "head.weight") add_rows("head", p);
    }
    place_units();
    return std::move(plan_);
  }

 private:
  // Without sharding only gradients are exchanged, and those are fp32.
  bool reads_copy(const ParameterShape& p) const {
    return narrow_ && scenario_.fsdp.strategy != no_shard && has_copy(p);
  }

  void add_rows(const std::string& name, const ParameterShape& p) {
    const bool cut = scenario_.fsdp.strategy != no_shard && scenario_.fsdp.bucket_bytes > 0;
    const std::int64_t ranks = scenario_.parallel.data, row_of_each = 4 * p.cols * ranks;  // Bytes.
    const std::int64_t rows =
        cut ? ranks * std::max<std::int64_t>(1, scenario_.fsdp.bucket_bytes / row_of_each) : p.rows;
    for (std::int64_t first = 0; first < p.rows; first += rows) {
      const std::string number = rows < p.rows ? " " + std::to_string(first / rows) : "";
      plan_.buckets.push_back(
          {name + number, -1, reads_copy(p), std::min(rows, p.rows - first) * p.cols});
    }
  }

  void add_to_unit(const ParameterShape& p, int unit, bool copied) {
    const std::int64_t sources =
        p.name.find(".experts.") == std::string::npos ? 1 : expert_ranks(scenario_);
    auto bucket =
        std::find_if(plan_.buckets.begin(), plan_.buckets.end(), [&](const PlannedBucket& one) {
          return one.unit == unit && one.narrow == copied && one.sources == sources;
        });
    if (bucket == plan_.buckets.end()) {
      plan_.buckets.push_back({"unit " + std::to_string(unit), unit, copied, 0, sources});
      bucket = std::prev(plan_.buckets.end());
    }
    bucket->elements += p.count();
  }

  // The largest class of units that are equal in elements has the slots; of two, the first in the
  // model.
  void place_units() {
    const Scenario::Fsdp& fsdp = scenario_.fsdp;
    if (!fsdp.double_buffer || fsdp.strategy < optim_grads) return;
    std::vector<std::int64_t> sizes(plan_.units), stages(plan_.units);
    for (const PlannedBucket& bucket : plan_.buckets) {
      if (bucket.unit >= 0) at(sizes, bucket.unit) += bucket.elements;
    }
    const std::vector<std::int64_t> of_layers = stages_of_layers(scenario_);
    for (std::size_t layer = 0; layer < of_layers.size(); ++layer)
      at(stages, units_[layer]) = of_layers[layer];
    for (std::int64_t stage = 0; stage < scenario_.parallel.pipeline; ++stage)
      place_units_of(stage, sizes, stages);
  }

  // Each stage has slots of its own.
  void place_units_of(std::int64_t stage, const std::vector<std::int64_t>& sizes,
                      const std::vector<std::int64_t>& stages) {
    std::vector<std::int64_t> own;
    for (int unit = 0; unit < plan_.units; ++unit) {
      if (at(stages, unit) == stage) own.push_back(at(sizes, unit));
    }
    const auto members = [&](std::int64_t size) {
      return std::count(own.begin(), own.end(), size);
    };
    const std::int64_t pooled =
        *std::max_element(own.begin(), own.end(),
                          [&](std::int64_t a, std::int64_t b) { return members(a) < members(b); });
    for (int unit = 0; unit < plan_.units; ++unit) {
      if (at(stages, unit) != stage) continue;
      const bool fits = at(sizes, unit) == pooled;
      if (fits) plan_.pooled.push_back(unit);
      if (!fits && scenario_.fsdp.persist_buf_on_alloc_fail) plan_.persistent.push_back(unit);
    }
  }

  const Scenario& scenario_;
  bool narrow_;
  std::vector<int> units_;
  ShardingPlan plan_;
};

std::int64_t buckets_of(const ShardingPlan& plan, int unit) {
  return std::count_if(plan.buckets.begin(), plan.buckets.end(),
                       [=](const auto& one) { return one.unit == unit; });
}

// Calls in which the gradients of these buckets are exchanged once.
std::int64_t reductions_of(const ShardingPlan& plan, const auto& counts) {
  std::int64_t calls = 0;
  for (const PlannedBucket& bucket : plan.buckets) calls += counts(bucket) ? bucket.sources : 0;
  return calls;
}

// Each layer of experts on several ranks exchanges the rows of a microbatch: their number once,
// then the rows themselves in both directions, and their gradients likewise.
std::int64_t expert_exchanges(const Scenario& scenario, std::int64_t microbatches, bool trains) {
  const std::string& pattern = scenario.model.pattern;
  if (expert_ranks(scenario) == 1) return 0;
  const std::int64_t again = holds(scenario.model.recompute, Recompute::moe) ? 2 : 0;
  return std::count(pattern.begin(), pattern.end(), 'E') * microbatches * (trains ? 5 + again : 3);
}

// Exchanges of rows in a block's passes of training, of one microbatch.
std::int64_t exchanges_of(const Scenario& scenario, const Scenario::Block& block) {
  const std::string& all = scenario.model.pattern;
  const std::int64_t in_block =
      std::count(all.begin() + block.first, all.begin() + block.first + block.count, 'E');
  return expert_exchanges(scenario, 1, true) / std::count(all.begin(), all.end(), 'E') * in_block;
}

// Weights that are there all the time, and are brought up to date after the optimizer.
std::int64_t resident(const Scenario& scenario, const ShardingPlan& plan) {
  if (scenario.fsdp.strategy == no_shard) return 0;
  return scenario.fsdp.strategy == optim_grads_params ? buckets_of(plan, -1)
                                                      : std::ssize(plan.buckets);
}

// The passes of a stage in an evaluation: of each microbatch those through all chunks.
std::vector<ScheduledPass> forward_passes(const Scenario& scenario, std::int64_t microbatches) {
  std::vector<ScheduledPass> passes;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    for (std::int64_t chunk = 0; chunk < scenario.parallel.chunks; ++chunk)
      passes.push_back({true, chunk, m});
  }
  return passes;
}

// The units of each piece, in order.
std::vector<std::vector<int>> units_of_pieces(const Scenario& scenario) {
  const std::vector<int> units = units_of_symbols(scenario);
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::vector<std::vector<int>> pieces;
  std::int64_t block = 0;
  for (std::int64_t left : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    std::vector<int>& own = pieces.emplace_back();
    for (; left > 0; --left, ++block) {
      const int unit = at(units, at(blocks, block).first);
      if (own.empty() || own.back() != unit) own.push_back(unit);
    }
  }
  return pieces;
}

// A unit is gathered for each use but one that follows a use of the same unit, on each stage.
std::int64_t unit_gathers(const Scenario& scenario, const ShardingPlan& plan,
                          std::int64_t microbatches, bool trains) {
  if (scenario.fsdp.strategy != optim_grads_params) return 0;
  const std::vector<std::vector<int>> pieces = units_of_pieces(scenario);
  const std::int64_t stages = scenario.parallel.pipeline;
  std::int64_t gathers = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    int held = -1;
    for (const ScheduledPass& pass : trains
                                         ? pass_order(stage_schedule(scenario, stage, microbatches))
                                         : forward_passes(scenario, microbatches)) {
      std::vector<int> units = at(pieces, pass.chunk * stages + stage);
      if (!pass.forward) std::reverse(units.begin(), units.end());
      for (const int unit : units) {
        if (unit != held) gathers += buckets_of(plan, unit);
        held = unit;
      }
    }
  }
  return gathers;
}

// Gathers of what every rank must know about the others' microbatches.
std::int64_t loss_gathers(const Scenario& scenario) {
  const Scenario::Model::Moe& moe = scenario.model.moe;
  return 1 + (has_layer(scenario, 'E') && (moe.aux_loss.millionths > 0 || moe.z_loss.millionths > 0)
                  ? 1
                  : 0);
}

bool has_delayed_exponents(const Scenario& scenario) {
  return multiplies_fp8(scenario) && scenario.fp8.recipe == Fp8Recipe::delayed;
}

// The ranks of each stage exchange amaxes among themselves, in one call.
std::int64_t one_of_each_stage(const Scenario& scenario, bool exchanges) {
  return exchanges ? scenario.parallel.pipeline : 0;
}
// Exponents of gathered codes come from the weights behind each update, or from earlier steps.
std::int64_t exchanges_behind_update(const Scenario& scenario) {
  return one_of_each_stage(scenario,
                           gathers_fp8_codes(scenario) && !has_delayed_exponents(scenario));
}

std::int64_t count_gathers(const Scenario& scenario) {
  const std::string& pattern = scenario.model.pattern;
  return scenario.model.moe.expert_bias ? std::count(pattern.begin(), pattern.end(), 'E') : 0;
}

// Calls of all stages of a replica: sends of its microbatches, and what all ranks of the run
// gather. Each piece but the last sends activations, each but the first their gradients.
std::int64_t sends(const Scenario& scenario, std::int64_t microbatches, bool trains) {
  if (scenario.parallel.pipeline == 1) return 0;
  const std::int64_t boundaries = pieces_of(scenario) - 1, tied = scenario.model.tied_embedding;
  return microbatches * (trains ? 2 * boundaries + tied : boundaries);
}

// A tied weight goes to the last stage at the start, and behind each update.
std::int64_t weights_sent(const Scenario& scenario) {
  return scenario.parallel.pipeline > 1 && scenario.model.tied_embedding ? 1 : 0;
}

}  // namespace

ShardingPlan plan_sharding(const Scenario& scenario) { return Planner(scenario).plan(); }

std::int64_t collectives_at_start(const Scenario& scenario, const ShardingPlan& plan) {
  return resident(scenario, plan) + one_of_each_stage(scenario, gathers_fp8_codes(scenario)) +
         weights_sent(scenario);
}

std::int64_t collectives_of_passes(const Scenario& scenario, const ShardingPlan& plan,
                                   std::int64_t microbatches) {
  const std::int64_t transfers = sends(scenario, microbatches, true);
  if (!with_reduction(scenario)) return transfers;
  // Gradients: of each microbatch, or of the step; where nothing is sharded the totals come back,
  // unless the library leaves them everywhere.
  const bool once =
      scenario.fsdp.strategy != no_shard || scenario.fsdp.reduction == Reduction::nccl;
  const std::int64_t reductions = reductions_of(plan, [](const PlannedBucket&) { return true; }) *
                                  (scenario.fsdp.strategy >= optim_grads ? microbatches : 1);
  return transfers + reductions + (once ? 0 : std::ssize(plan.buckets)) +
         unit_gathers(scenario, plan, microbatches, true) +
         expert_exchanges(scenario, microbatches, true) + amax_exchanges_of_step(scenario);
}

std::int64_t amax_exchanges_of_step(const Scenario& scenario) {
  return one_of_each_stage(scenario, has_delayed_exponents(scenario) && with_reduction(scenario));
}

std::int64_t amax_exchanges(const Scenario& scenario) {
  const std::int64_t at_start = one_of_each_stage(scenario, gathers_fp8_codes(scenario));
  return at_start + scenario.training.steps *
                        (amax_exchanges_of_step(scenario) + exchanges_behind_update(scenario));
}

std::int64_t collectives_of_forward_passes(const Scenario& scenario, const ShardingPlan& plan,
                                           std::int64_t microbatches) {
  const std::int64_t transfers = sends(scenario, microbatches, false);
  if (!with_reduction(scenario)) return transfers;
  return transfers + unit_gathers(scenario, plan, microbatches, false) +
         expert_exchanges(scenario, microbatches, false);
}

std::int64_t collectives_of_step(const Scenario& scenario, const ShardingPlan& plan,
                                 std::int64_t microbatches) {
  const std::int64_t stages = scenario.parallel.pipeline;
  const bool exchanges = with_reduction(scenario) || stages > 1;
  if (!exchanges) return 0;
  const bool parted =
      scenario.fsdp.strategy != no_shard || stages > 1 || expert_ranks(scenario) > 1;
  const std::int64_t rows_of_the_norm = parted ? stages : 0;
  const std::int64_t all = collectives_of_passes(scenario, plan, microbatches) + rows_of_the_norm +
                           stages * loss_gathers(scenario) + weights_sent(scenario);
  if (!with_reduction(scenario)) return all;
  return all + resident(scenario, plan) + count_gathers(scenario) +
         exchanges_behind_update(scenario);
}

std::int64_t exchanges_in_regions(const Scenario& scenario, bool trains) {
  const bool holds = with_partial_graphs(scenario) && captures_exchange(scenario);
  return holds ? expert_exchanges(scenario, 1, trains) : 0;
}

// A unit is gathered for each pass of a region in it, and its gradients are reduced where those of
// a microbatch are.
std::int64_t collectives_of_capture(const Scenario& scenario, const ShardingPlan& plan,
                                    std::optional<std::int64_t> stage) {
  if (!with_reduction(scenario)) return 0;
  const std::vector<int> units = units_of_symbols(scenario);
  const std::int64_t gathers = scenario.fsdp.strategy == optim_grads_params ? 2 : 0;
  const std::int64_t reductions = scenario.fsdp.strategy >= optim_grads ? 1 : 0;
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::int64_t calls = 0, block = 0, piece = 0;  // In all slots.
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    const bool counts = !stage || piece % scenario.parallel.pipeline == *stage;
    const std::int64_t own = counts ? slots_of_piece(scenario, piece) : 0;
    ++piece;
    for (const std::int64_t end = block + count; block < end; ++block) {
      if (captured_symbols(scenario, at(blocks, block)).empty()) continue;
      if (captures_exchange(scenario)) calls += own * exchanges_of(scenario, at(blocks, block));
      const int unit = at(units, at(blocks, block).first);
      const auto is_here = [=](const PlannedBucket& bucket) { return bucket.unit == unit; };
      calls += own * (gathers * buckets_of(plan, unit) + reductions * reductions_of(plan, is_here));
    }
  }
  return scenario.cuda_graph.capture_passes * calls;
}

std::int64_t collectives_of_evaluation(const Scenario& scenario, const ShardingPlan& plan,
                                       std::int64_t microbatches) {
  const std::int64_t stages = scenario.parallel.pipeline;
  if (!with_reduction(scenario) && stages == 1) return 0;
  return collectives_of_forward_passes(scenario, plan, microbatches) +
         stages * loss_gathers(scenario);
}

}  // namespace lockstep
