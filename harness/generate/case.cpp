#include "harness/generate/case.h"

#include "harness/generate/generator.h"
#include "harness/generate/steering.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kInvalidShare = 20;
constexpr std::uint64_t kRareShare = 8;  // An eighth of the cases with an odd number.

// splitmix64's finaliser: every bit of the result depends on every bit of `z`.
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Cases with an even number are drawn from their seed alone, without regard to what is rare.
Scenario draw_scenario(std::uint64_t campaign_seed, std::int64_t index, std::uint64_t seed,
                       const Outside& outside) {
  Choices choices(seed);
  if (index % 2 == 0) return generate_scenario(choices, RareSize::none, outside);
  Choices kind(mixed(seed ^ 0x726172652073697Au));
  if (!kind.one_in(kRareShare)) return steered_scenario(campaign_seed, index, outside);
  return generate_scenario(choices, static_cast<RareSize>(1 + kind.draw(kRareSizes)), outside);
}

void draw_schedules(Scenario& scenario, Choices& choices) {
  Scenario::Checker::Schedule& schedule = scenario.checker.schedule;
  schedule.kind = choices.pick<ScheduleKind>({ScheduleKind::random, ScheduleKind::pct});
  if (schedule.kind == ScheduleKind::pct) schedule.depth = choices.between(1, 4);
  schedule.count = choices.between(2, 6);
}

}  // namespace

std::uint64_t case_seed(std::uint64_t campaign_seed, std::int64_t index) {
  return mixed(mixed(campaign_seed + 0x9E3779B97F4A7C15u) +
               static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u);
}

const std::vector<std::string>& profiles() {
  static const std::vector<std::string> names{"small", "schedules", "near-legal"};
  return names;
}

CampaignCase make_case(std::uint64_t campaign_seed, std::int64_t index, const std::string& profile,
                       const Outside& outside, const Likeness* like) {
  CampaignCase one;
  one.seed = case_seed(campaign_seed, index);
  // Draws of their own, so that a shrinker that edits the scenario's never meets them.
  Choices more(mixed(one.seed ^ 0x6C6F636B73746570u));
  const bool near = (more.one_in(kInvalidShare) && like == nullptr) || profile == "near-legal";
  // What is refused reaches nothing.
  Choices choices(one.seed);
  one.scenario = like != nullptr
                     ? like->draw(choices, outside)
                     : draw_scenario(campaign_seed, index, one.seed, near ? Outside() : outside);
  one.scenario.name = "random-" + std::to_string(index);
  if (profile == "schedules") draw_schedules(one.scenario, more);
  if (near) {
    one.scenario.numerics = {
        Numerics::fp32};  // A width that breaks another rule would break L03 too.
    one.invalid = make_invalid_case(one.scenario, more);
  }
  return one;
}

}  // namespace lockstep
