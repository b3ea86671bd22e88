#include "harness/generate/steering.h"

#include <utility>
#include <vector>

#include "harness/generate/case.h"
#include "harness/generate/features.h"
#include "harness/generate/generator.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kCandidates = 8;
constexpr std::uint64_t kKnown = 4000;     // Random scenarios that say how rare a pair is.
constexpr std::int64_t kSeenCounts = 100;  // As so many of them counts one case of the block.

// How often random scenarios have each pair.
const Distribution& known() {
  static const Distribution all = [] {
    Distribution drawn;
    for (std::uint64_t seed = 0; seed < kKnown; ++seed) {
      Choices choices(seed);
      drawn.add(features_of(generate_scenario(choices)));
    }
    return drawn;
  }();
  return all;
}

struct Candidate {
  Scenario scenario;
  Traits traits;
};

Candidate candidate(std::uint64_t seed, std::uint64_t number, const Outside& outside) {
  Choices choices(seed + number * 0x9E3779B97F4A7C15u);
  Candidate one{generate_scenario(choices, RareSize::none, outside), {}};
  one.traits = features_of(one.scenario);
  return one;
}

// A block's cases up to one of them.
class Block {
 public:
  Block(std::uint64_t campaign_seed, std::int64_t number, const Outside& outside)
      : campaign_seed_(campaign_seed), first_(number * kSteeredBlock), outside_(outside) {}

  bool is(std::uint64_t campaign_seed, std::int64_t number, const Outside& outside) const {
    return campaign_seed_ == campaign_seed && first_ == number * kSteeredBlock &&
           outside_ == outside;
  }
  const Scenario& at(std::int64_t index) {
    while (first_ + std::ssize(cases_) <= index) add();
    return lockstep::at(cases_, index - first_);
  }

 private:
  void add() {
    const std::uint64_t seed = case_seed(campaign_seed_, first_ + std::ssize(cases_));
    Candidate best = candidate(seed, 0, outside_);
    std::int64_t most = score(best.traits);
    for (std::uint64_t number = 1; number < kCandidates; ++number) {
      Candidate other = candidate(seed, number, outside_);
      const std::int64_t value = score(other.traits);
      if (value <= most) continue;
      most = value;
      best = std::move(other);
    }
    seen_.add(best.traits);
    cases_.push_back(std::move(best.scenario));
  }

  // A pair that ten times as many scenarios have counts a tenth: the rarest decide.
  std::int64_t score(const Traits& traits) const {
    constexpr std::int64_t kUnit = 1'000'000;
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < trait_names().size(); ++i) {
      if (traits[i] && !trait_names()[i].rare) list.push_back(i);
    }
    std::int64_t sum = 0;
    for (std::size_t a = 0; a < list.size(); ++a) {
      for (std::size_t b = a + 1; b < list.size(); ++b) {
        const std::int64_t count =
            known().count(list[a], list[b]) + kSeenCounts * seen_.count(list[a], list[b]);
        sum += kUnit / (1 + count);
      }
    }
    return sum;
  }

  std::uint64_t campaign_seed_;
  std::int64_t first_;
  Outside outside_;
  std::vector<Scenario> cases_;
  Distribution seen_;
};

}  // namespace

Scenario steered_scenario(std::uint64_t campaign_seed, std::int64_t index, const Outside& outside) {
  // The block that was used last is kept, since a campaign asks for one case after the other.
  const std::int64_t number = index / kSteeredBlock;
  thread_local Block block(campaign_seed, number, outside);
  if (!block.is(campaign_seed, number, outside)) block = Block(campaign_seed, number, outside);
  return block.at(index);
}

}  // namespace lockstep
