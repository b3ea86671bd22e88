// Fewer ranks, simpler strategies, units and buffers.
#include "harness/shrink/rules.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using Candidates = std::vector<Scenario>;

// One rank that shards is still smaller than two; what needs several stays as it is.
Candidates fewer_ranks(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t ranks : smaller(s.parallel.data, 1)) {
    candidates.push_back(s);
    candidates.back().parallel.data = ranks;
  }
  return candidates;
}

Candidates simpler_strategies(const Scenario& s) {
  Candidates candidates;
  for (const Sharding other : {Sharding::no_shard, Sharding::optim, Sharding::optim_grads}) {
    if (other >= s.fsdp.strategy) break;
    candidates.push_back(s);
    candidates.back().fsdp.strategy = other;
  }
  return candidates;
}

// Units of one block, or of two, in place of a list or of larger ones.
Candidates simpler_units(const Scenario& s) {
  Candidates candidates;
  const auto propose = [&](std::int64_t unit) {
    if (!s.fsdp.unit_is_list && s.fsdp.unit == std::vector<std::int64_t>{unit}) return;
    candidates.push_back(s);
    candidates.back().fsdp.unit = {unit};
    candidates.back().fsdp.unit_is_list = false;
  };
  if (!with_sharding(s)) return candidates;
  propose(1);
  if (s.fsdp.unit_is_list || s.fsdp.unit.front() > 1) propose(2);
  return candidates;
}

Candidates less_prefetch(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t units : smaller(s.fsdp.prefetch, 0)) {
    candidates.push_back(s);
    candidates.back().fsdp.prefetch = units;
  }
  return candidates;
}

Candidates plain_buffers(const Scenario& s) {
  Candidates candidates;
  const Scenario::Fsdp plain;
  for (bool Scenario::Fsdp::*setting :
       {&Scenario::Fsdp::double_buffer, &Scenario::Fsdp::persist_buf_on_alloc_fail}) {
    if (s.fsdp.*setting == plain.*setting) continue;
    candidates.push_back(s);
    candidates.back().fsdp.*setting = plain.*setting;
  }
  return candidates;
}

}  // namespace

std::vector<ShrinkRule> shrink_rank_rules() {
  return {{"fewer ranks", fewer_ranks},
          {"a simpler strategy", simpler_strategies},
          {"simpler units", simpler_units},
          {"less prefetch", less_prefetch},
          {"plain buffers", plain_buffers}};
}

}  // namespace lockstep
