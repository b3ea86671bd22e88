#include "harness/foreign/case_order.h"

#include <algorithm>

#include "harness/expect/run_estimate.h"

namespace lockstep::foreign {
namespace {

constexpr std::size_t kWaiting = 1024;
// Turn 0 takes the oldest case, so that none waits for ever; odd turns take the best of all, and
// even turns the best of those that have the feature that was judged least.
constexpr std::int64_t kTurns = 5;
// A number of ranks is worth this at first, and less each time: their effort would leave them last.
constexpr double kOfRanks = 60;
constexpr double kOfARestart = 2;             // Effort of new processes, for other ranks.
constexpr double kMultiplyAddsOfACase = 5e7;  // That many double the effort of the least case.

}  // namespace

void CaseOrder::fill() {
  while (!at_the_end_ && waiting_.size() < kWaiting) {
    std::optional<Waiting> one = draw_();
    if (!one) {
      at_the_end_ = true;
      return;
    }
    one->projected = project(one->given, honours_).scenario;
    if (one->projected) {
      one->features = met_.features_of(*one->projected);
      const double of_a_rank =
          1 + estimate_run(*one->projected).multiply_adds / kMultiplyAddsOfACase;
      // Ranks run beside each other as far as there are cores, and R5 asks for runs of each.
      one->effort = of_a_rank * static_cast<double>(1 + one->projected->parallel.data) / 2;
    }
    waiting_.push_back(std::move(*one));
  }
}

double CaseOrder::worth(const Waiting& one) const {
  if (!one.projected) return 0;
  const double restart = one.projected->parallel.data == ranks_ ? 0 : kOfARestart;
  const auto same = taken_by_ranks_.find(one.projected->parallel.data);
  const auto met = static_cast<double>(same == taken_by_ranks_.end() ? 0 : same->second);
  return (met_.rarity_of(one.features) + kOfRanks / (1 + met)) / (one.effort + restart);
}

std::list<CaseOrder::Waiting>::iterator CaseOrder::best_with(std::optional<std::size_t> feature) {
  auto best = waiting_.end();
  double most = 0;
  for (auto one = waiting_.begin(); one != waiting_.end(); ++one) {
    const std::vector<std::size_t>& has = one->features;
    if (feature && std::find(has.begin(), has.end(), *feature) == has.end()) continue;
    const double here = worth(*one);
    if (here <= most) continue;
    most = here;
    best = one;
  }
  return best;
}

std::optional<CaseOrder::Waiting> CaseOrder::next() {
  fill();
  if (waiting_.empty()) return std::nullopt;
  auto chosen = waiting_.begin();
  if (const std::int64_t turn = taken_ % kTurns; turn > 0) {
    auto best = waiting_.end();
    if (turn % 2 == 0) {
      for (const std::size_t feature : met_.seldomest_first()) {
        best = best_with(feature);
        if (best != waiting_.end()) break;
      }
    } else {
      best = best_with(std::nullopt);
    }
    if (best != waiting_.end()) chosen = best;
  }
  Waiting one = std::move(*chosen);
  waiting_.erase(chosen);
  if (one.projected)
    ranks_ = one.projected->parallel.data;
  else
    ++taken_;
  return one;
}

void CaseOrder::judged(const Waiting& one) {
  if (!one.projected) return;
  ++taken_;
  met_.add(one.features);
  ++taken_by_ranks_[one.projected->parallel.data];
}

void CaseOrder::refused(const Waiting& one) { met_.add_refused(one.features); }

}  // namespace lockstep::foreign
