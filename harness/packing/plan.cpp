#include "harness/packing/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

// The numbers of documents in increasing order, and the share of those that have at most the i-th
// in all `together` packs, i from 1.
struct Steps {
  Steps(const PackHistogram& histogram, std::int64_t together) {
    for (const auto& [documents, count] : histogram) {
      // A graph of no document is one of one: max_packed_seqs begins at 1.
      const std::int64_t capacity = std::max<std::int64_t>(documents, 1);
      if (capacities.empty() || capacities.back() != capacity) {
        capacities.push_back(capacity);
        upto.push_back(upto.back());
      }
      upto.back() += static_cast<double>(count);
    }
    for (double& share : upto)
      share = std::pow(share / static_cast<double>(packs(histogram)), together);
  }
  std::size_t size() const { return capacities.size(); }
  std::vector<std::int64_t> capacities;
  std::vector<double> upto{0};
};

// least[i]: seconds, times their share, of all up to the i-th number when the largest bucket is
// that number; from[i]: the number that the bucket before it is.
struct Row {
  std::vector<double> least;
  std::vector<std::size_t> from;
};

Row next_row(const Steps& steps, const PackCosts& costs, const Row& before) {
  Row row{std::vector<double>(steps.size() + 1, std::numeric_limits<double>::infinity()),
          std::vector<std::size_t>(steps.size() + 1, 0)};
  for (std::size_t i = 1; i <= steps.size(); ++i) {
    const double each = costs.replay_at(steps.capacities[i - 1]);
    for (std::size_t j = 0; j < i; ++j) {
      const double seconds = before.least[j] + each * (steps.upto[i] - steps.upto[j]);
      if (seconds >= row.least[i]) continue;
      row.least[i] = seconds;
      row.from[i] = j;
    }
  }
  return row;
}

}  // namespace

double PackCosts::replay_at(std::int64_t capacity) const {
  require(!replay.empty(), "some capacity was measured");
  const auto above = replay.lower_bound(capacity);
  if (above == replay.end()) return replay.rbegin()->second;
  if (above == replay.begin() || above->first == capacity) return above->second;
  const auto below = std::prev(above);
  const double part = static_cast<double>(capacity - below->first) /
                      static_cast<double>(above->first - below->first);
  return below->second + part * (above->second - below->second);
}

std::vector<PackingPlan> cheapest_plans(const PackHistogram& histogram, const PackCosts& costs,
                                        std::size_t most, std::int64_t together) {
  require(packs(histogram) > 0, "there is a pack");
  const Steps steps(histogram, together);
  std::vector<PackingPlan> plans{{.seconds = costs.eager}};
  // Without a bucket only zero packs are covered so far, at no cost.
  std::vector<Row> rows{
      {std::vector<double>(steps.size() + 1, std::numeric_limits<double>::infinity()), {}}};
  rows[0].least[0] = 0;
  for (std::size_t count = 1; count <= std::min(most, steps.size()); ++count) {
    rows.push_back(next_row(steps, costs, rows.back()));
    std::size_t last = 0;
    double seconds = std::numeric_limits<double>::infinity();
    for (std::size_t i = count; i <= steps.size(); ++i) {
      const double sum = rows[count].least[i] + costs.eager * (1 - steps.upto[i]);
      if (sum < seconds) {
        seconds = sum;
        last = i;
      }
    }
    PackingPlan plan{.replayed = steps.upto[last], .seconds = seconds};
    for (std::size_t row = count, i = last; row > 0; i = rows[row].from[i], --row) {
      plan.buckets.insert(plan.buckets.begin(), steps.capacities[i - 1]);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

CapacityUse use_of(const PackHistogram& histogram, const PackCosts& costs, std::int64_t capacity,
                   std::int64_t together) {
  require(packs(histogram) > 0, "there is a pack");
  const Steps steps(histogram, together);
  CapacityUse use;
  const double each = costs.replay_at(capacity);
  double tightest = 0;
  for (std::size_t i = 1; i <= steps.size() && steps.capacities[i - 1] <= capacity; ++i) {
    use.replayed = steps.upto[i];
    tightest += (steps.upto[i] - steps.upto[i - 1]) * costs.replay_at(steps.capacities[i - 1]);
  }
  use.seconds = use.replayed * each + (1 - use.replayed) * costs.eager;
  if (use.replayed > 0) use.padding = each - tightest / use.replayed;
  return use;
}

double share_replayed(const PackHistogram& histogram, std::int64_t capacity,
                      std::int64_t together) {
  return use_of(histogram, {.replay = {{1, 0}}}, capacity, together).replayed;
}

const PackingPlan& proposed(const std::vector<PackingPlan>& plans, double slack) {
  require(!plans.empty(), "there is a plan");
  const auto cheaper = [](const PackingPlan& a, const PackingPlan& b) {
    return a.seconds < b.seconds;
  };
  const double bar = std::min_element(plans.begin(), plans.end(), cheaper)->seconds * (1 + slack);
  return *std::find_if(plans.begin(), plans.end(),
                       [&](const PackingPlan& plan) { return plan.seconds <= bar; });
}

}  // namespace lockstep
