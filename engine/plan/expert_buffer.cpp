#include "engine/plan/expert_buffer.h"

#include <algorithm>
#include <limits>

#include "kernels/core/fault.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

// The capacity C of arithmetic.md 2.11, in double from left to right. It is clamped where an int32
// could no longer count the rows of a padded buffer: no device holds such a buffer.
std::int32_t capacity_of(const Scenario& scenario) {
  const Scenario::Model::Moe& m = scenario.model.moe;
  if (!m.capacity_factor) return 0;
  const double rows = static_cast<double>(scenario.data.pack_length);
  const double pairs = static_cast<double>(m.top_k) * rows,
               experts = static_cast<double>(m.experts);
  const double in_order =
      m.capacity_factor->value() * static_cast<double>(m.top_k) * rows / experts;
  const double regrouped = m.capacity_factor->value() * (pairs / experts);
  const double exact = faulty("moe-capacity-in-another-order", in_order, regrouped);
  const std::int32_t most =
      std::numeric_limits<std::int32_t>::max() / static_cast<std::int32_t>(m.experts);
  if (exact >= static_cast<double>(most)) return most;
  const auto whole = static_cast<std::int32_t>(exact);
  return whole + (static_cast<double>(whole) < exact ? 1 : 0);
}

}  // namespace

ExpertBuffer::ExpertBuffer(const Scenario& scenario) {
  const Scenario::Model::Moe& m = scenario.model.moe;
  const std::int64_t pairs = scenario.data.pack_length * m.top_k;
  capacity = capacity_of(scenario);
  padded = capacity > 0 && m.pad_to_capacity;
  rows = capacity == 0 ? pairs
         : padded      ? m.experts * capacity
                       : std::min(pairs, m.experts * capacity);
  const std::int64_t ranks = expert_ranks(scenario), of_owner = m.experts / ranks * capacity;
  places = capacity == 0 ? pairs : padded ? of_owner : std::min(pairs, of_owner);
  owner_rows = ranks == 1 ? rows : ranks * places;
}

}  // namespace lockstep
