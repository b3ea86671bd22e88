#include "harness/generate/crossed.h"

#include <algorithm>

#include "harness/generate/case.h"
#include "harness/generate/choices.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

constexpr std::int64_t kDonors = 128;
constexpr std::uint64_t kOfCrossing = 0x63726F7373656421u;  // Its draws are its own.

struct Part {
  bool (*is_in)(const Scenario&);
  void (*take)(Scenario& to, const Scenario& from);
};

constexpr Part kParts[] = {
    {[](const Scenario& s) { return s.cuda_graph.impl == GraphImpl::partial; },
     [](Scenario& to, const Scenario& from) { to.cuda_graph = from.cuda_graph; }},
    {[](const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; },
     [](Scenario& to, const Scenario& from) { to.cuda_graph = from.cuda_graph; }},
    {[](const Scenario& s) { return !s.training.recapture_at.empty(); },
     [](Scenario& to, const Scenario& from) {
       to.training.recapture_at = from.training.recapture_at;
     }},
    {[](const Scenario& s) { return !s.offload.modules.empty(); },
     [](Scenario& to, const Scenario& from) { to.offload = from.offload; }},
    {[](const Scenario& s) { return s.fsdp.strategy != Sharding::no_shard; },
     [](Scenario& to, const Scenario& from) { to.fsdp = from.fsdp; }},
    {[](const Scenario& s) { return s.training.eval_every > 0; },
     [](Scenario& to, const Scenario& from) { to.training.eval_every = from.training.eval_every; }},
    {[](const Scenario& s) { return s.training.in_flight > 1 && !depth_follows(s); },
     [](Scenario& to, const Scenario& from) { to.training.in_flight = from.training.in_flight; }},
    {[](const Scenario& s) { return !s.training.resume_at.empty(); },
     [](Scenario& to, const Scenario& from) { to.training.resume_at = from.training.resume_at; }},
    {[](const Scenario& s) { return !s.model.recompute.empty(); },
     [](Scenario& to, const Scenario& from) { to.model.recompute = from.model.recompute; }},
};

// Other parts may not be built beside chunks, and another depth would not be the schedule's.
Scenario in_1f1b(Scenario s) {
  s.parallel.expert = 1;
  if (!depth_follows(s)) return s;
  s.parallel.pipeline = s.parallel.chunks = s.parallel.group = 1;
  s.parallel.schedule = PipelineSchedule::one_forward_one_backward;
  s.training.in_flight = std::min(s.training.in_flight, fewest_microbatches(s.training));
  return s;
}

}  // namespace

CrossedCases::CrossedCases(std::uint64_t campaign_seed, const std::string& profile)
    : seed_(campaign_seed), profile_(profile) {
  for (std::int64_t i = 0; i < kDonors; ++i)
    donors_.push_back(make_case(seed_, i, profile_).scenario);
}

Scenario CrossedCases::at(std::int64_t index) const {
  Scenario scenario = in_1f1b(make_case(seed_, index, profile_).scenario);
  Choices choices(case_seed(seed_ ^ kOfCrossing, index));
  for (const Part& part : kParts) {
    const std::int64_t first = choices.between(0, kDonors - 1);
    if (!choices.one_in(2)) continue;
    for (std::int64_t i = 0; i < kDonors; ++i) {
      const Scenario& donor = lockstep::at(donors_, (first + i) % kDonors);
      if (!part.is_in(donor)) continue;
      part.take(scenario, donor);
      break;
    }
  }
  scenario.expect = {};
  scenario.name = "crossed-" + std::to_string(index);
  return scenario;
}

}  // namespace lockstep
