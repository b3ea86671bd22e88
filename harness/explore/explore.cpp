#include "harness/explore/explore.h"

#include <algorithm>
#include <limits>

#include "engine/device/log_uniform.h"
#include "harness/explore/mix.h"
#include "kernels/core/at.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Which of the items that may run goes next.
struct Explorer::Choice {
  Choice(const Program& program, const ExploreOptions& options, std::uint64_t seed)
      : program_(program), policy_(options.policy), draws_(seed), due_(program.items.size()) {
    for (std::size_t t = 0; t < program.threads.size(); ++t)
      priority_.push_back(draws_.draw() | kHigh);
    for (int i = 1; policy_ == ExploreOptions::Policy::pct && i < options.depth; ++i) {
      changes_.push_back(static_cast<std::int64_t>(draws_.below(program.items.size())));
    }
    if (!options.delays.empty()) place_delays(options.delays);
  }

  // A stream is one rank's, and so are its items.
  void place_delays(const std::vector<StreamDelay>& delays) {
    const std::size_t threads = program_.threads.size();
    std::vector<int> rank(threads);
    for (int i = 0; i < program_.size(); ++i) {
      rank[thread_of(i)] = at(program_.items, i).work.place.rank;
    }
    most_.resize(threads);
    most_in_graphs_.resize(threads);
    for (const StreamDelay& delay : delays) {
      for (std::size_t t = 0; t < threads; ++t) {
        if (delay.rank >= 0 && delay.rank != rank[t]) continue;
        if (delay.stream == "graph") most_in_graphs_[t] = std::max(most_in_graphs_[t], delay.most);
        if (delay.stream == program_.threads[t].name) most_[t] = std::max(most_[t], delay.most);
      }
    }
  }

  void became_ready(int item) {
    if (most_.empty()) return;
    const std::int64_t most = (program_.in_graph(item) ? most_in_graphs_ : most_)[thread_of(item)];
    at(due_, item) = most == 0 ? 0 : turn_ + log_uniform(draws_.draw(), most);
  }

  std::size_t pick(const std::vector<int>& ready) {
    const std::size_t index = choose(ready);
    if (std::find(changes_.begin(), changes_.end(), turn_) != changes_.end())
      priority_[thread_of(ready[index])] = --low_;
    ++turn_;
    return index;
  }

 private:
  static constexpr std::uint64_t kHigh = std::uint64_t{1} << 63;
  std::size_t thread_of(int item) const {
    return static_cast<std::size_t>(at(program_.items, item).thread);
  }
  std::int64_t due(int item) const { return at(due_, item); }

  std::size_t choose(const std::vector<int>& ready) {
    if (most_.empty() && policy_ == ExploreOptions::Policy::random)
      return draws_.below(ready.size());
    std::int64_t now = turn_;
    if (!most_.empty()) {  // When all wait, time goes on.
      std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
      for (const int item : ready) earliest = std::min(earliest, due(item));
      now = turn_ = std::max(now, earliest);
    }
    std::size_t best = ready.size();
    std::uint64_t best_rank = 0;
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (!most_.empty() && due(ready[i]) > now) continue;
      const std::uint64_t rank = rank_of(ready[i]);
      if (best < ready.size() && rank <= best_rank) continue;
      best = i;
      best_rank = rank;
    }
    return best;
  }

  std::uint64_t rank_of(int item) {
    switch (policy_) {
      case ExploreOptions::Policy::random:
        return draws_.draw();
      case ExploreOptions::Policy::pct:
        return priority_[thread_of(item)];
      case ExploreOptions::Policy::program:
        break;
    }
    return ~static_cast<std::uint64_t>(item);
  }

  const Program& program_;
  ExploreOptions::Policy policy_;
  Draws draws_;
  std::vector<std::uint64_t> priority_;  // By thread.
  std::uint64_t low_ = kHigh;
  // CooperativeThreads at which the thread that runs falls behind all others.
  std::vector<std::int64_t> changes_;
  // CooperativeThreads, by thread; empty without delays.
  std::vector<std::int64_t> most_, most_in_graphs_;
  std::vector<std::int64_t> due_;  // By item.
  std::int64_t turn_ = 0;
};

Explorer::Explorer(const Program& program)
    : program_(program),
      after_begin_(program.items.size() + 1),
      missing_at_start_(program.items.size()) {
  std::vector<int> last(program.threads.size(), -1);
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; i < program.size(); ++i) {
    int& before = at(last, at(program.items, i).thread);
    if (before >= 0) edges.emplace_back(before, i);
    before = i;
    for (const int other : program.before_of(i)) edges.emplace_back(other, i);
  }
  std::sort(edges.begin(), edges.end());
  for (const auto& [from, to] : edges) {
    ++after_begin_[static_cast<std::size_t>(from) + 1];
    ++at(missing_at_start_, to);
    after_.push_back(to);
  }
  for (std::size_t i = 1; i < after_begin_.size(); ++i) after_begin_[i] += after_begin_[i - 1];
}

Tags Explorer::run(const ExploreOptions& options, std::uint64_t seed) {
  Choice choice(program_, options, seed);
  missing_ = missing_at_start_;
  values_.assign(program_.atoms, 0);
  writers_.assign(program_.atoms, 0);
  effects_.assign(program_.size(), 0);
  met_ = effects_;
  order_.clear();
  ready_.clear();
  for (int i = 0; i < program_.size(); ++i) {
    if (at(missing_, i) > 0) continue;
    ready_.push_back(i);
    choice.became_ready(i);
  }
  while (!ready_.empty()) {
    const std::size_t index = choice.pick(ready_);
    const int item = ready_[index];
    ready_[index] = ready_.back();
    ready_.pop_back();
    order_.push_back(item);
    execute(item);
    for (int i = at(after_begin_, item); i < after_begin_[static_cast<std::size_t>(item) + 1];
         ++i) {
      const int next = at(after_, i);
      if (--at(missing_, next) > 0) continue;
      ready_.push_back(next);
      choice.became_ready(next);
    }
  }
  Tags tags;
  for (int i = 0; i < program_.size(); ++i) {
    const std::size_t k = i;
    if (program_.items[k].observed) tags.observed = mix(tags.observed, effects_[k]);
    tags.everything = mix(tags.everything, met_[k]);
  }
  for (const std::uint64_t writers : writers_) tags.everything = mix(tags.everything, writers);
  return tags;
}

void Explorer::execute(int item) {
  const std::size_t k = item;
  std::uint64_t effect = program_.items[k].identity, met = 0;
  for (const int atom : program_.reads_of(item)) {
    effect = mix(effect, at(values_, atom));
    met = mix(met, at(writers_, atom));
  }
  for (const int atom : program_.writes_of(item)) {
    const std::size_t a = atom;
    values_[a] = mix(effect, a);
    met = mix(met, writers_[a]);
    writers_[a] = mix(writers_[a], k);
  }
  effects_[k] = effect;
  met_[k] = met;
}

Exploration explore(const Program& program, const ExploreOptions& options) {
  Explorer explorer(program);
  Exploration result;
  const ExploreOptions as_called{.policy = ExploreOptions::Policy::program, .delays = {}};
  result.expected = explorer.run(as_called, 0);
  const std::vector<std::uint64_t> expected = explorer.met();
  while (result.schedules < options.count && !result.observed) {
    const std::uint64_t seed =
        (options.seed + static_cast<std::uint64_t>(result.schedules++)) & kMostSeed;
    const Tags tags = explorer.run(options, seed);
    if (tags == result.expected || (tags.observed == result.expected.observed && result.reordered))
      continue;
    FoundSchedule found{.seed = seed, .order = explorer.order(), .tags = tags};
    const auto differs = std::mismatch(expected.begin(), expected.end(), explorer.met().begin());
    if (differs.first != expected.end())
      found.item = static_cast<int>(differs.first - expected.begin());
    if (explorer.run(options, seed) != tags || explorer.order() != found.order) {
      result.unstable =
          "schedule " + std::to_string(seed) + " did not come out the same when it ran again";
      return result;
    }
    if (tags.observed != result.expected.observed) result.observed = found;
    if (!result.reordered) result.reordered = std::move(found);
  }
  return result;
}

std::vector<SimTurn> turns(const Program& program, const std::vector<int>& order) {
  std::vector<SimTurn> list;
  list.reserve(order.size());
  for (const int item : order) {
    const ProgramThread& thread = at(program.threads, at(program.items, item).thread);
    list.push_back({thread.stream, program.in_graph(item) ? thread.lane : -1});
  }
  return list;
}

std::string bound_text(const Program& program, const ExploreOptions& options) {
  const std::string ran =
      std::to_string(options.count) + (options.count == 1 ? " schedule ran" : " schedules ran");
  if (options.policy != ExploreOptions::Policy::pct) return ran;
  std::string chance = "1/" + std::to_string(program.threads.size());
  if (options.depth > 1) {
    chance = "1/(" + std::to_string(program.threads.size()) + " * " +
             std::to_string(program.size()) + "^" + std::to_string(options.depth - 1) + ")";
  }
  return "a missing edge of depth " + std::to_string(options.depth) +
         " is hit with probability >= " + chance + " a schedule; " + ran;
}

}  // namespace lockstep
