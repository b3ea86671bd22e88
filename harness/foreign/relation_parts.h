// What the relations share, and the judges of the table in relations.cpp.
#pragma once

#include <string>

#include "harness/foreign/engine_case.h"

namespace lockstep::foreign {

using Applies = std::string(const EngineCase&);
using Judge = void(EngineCase&, const Choices&);

inline constexpr const char* kNoGradient = "every gradient is zero";

[[noreturn]] void throw_vacuous(const std::string& reason, const std::string& choices = "");
// A request with another scenario, which the rules of scenarios must let pass; else NotApplicable.
RunRequest variant(const EngineCase& one, const std::function<void(Scenario&)>& change,
                   const std::string& what);
// The kinds that an engine observes once a step. An engine that is asked for tensors of a
// microbatch may have to wait for its device, and so hide a race.
std::vector<std::string> kinds_of_steps(const Hello& hello);
// Steps before graphs are captured; 0 without graphs.
std::int64_t warm_up(const Scenario& scenario);
// Microbatches of training after warm-up that graphs can replay, and those that they cannot: steps
// where a graph holds a whole one. Each rank counts its own. Where the microbatch of one rank does
// not fit, the other ranks may replay theirs, or all may fall back together.
struct GraphFit {
  struct Range {
    std::int64_t least = 0, most = 0;
  };
  Range replayed = {}, too_large = {};
};
GraphFit graph_fit(const Scenario& scenario, const EngineFeed& feed);
// "", or why documents of this case are not independent of each other.
std::string why_documents_mix(const EngineCase& one);
// Documents of a pack see each other in the scales of fp8, and steps and microbatches in those of
// its recipe delayed.
std::string why_scales_mix(const EngineCase& one);
bool has_delayed_scales(const EngineCase& one);
std::string why_scales_are_of_earlier_steps(const EngineCase& one);
std::string why_no_two_halves(const EngineCase& one);
// "", or why weights cannot be made to stand still.
std::string why_weights_move(const EngineCase& one);
// Whether the engine honours every value of a scenario.
bool is_honoured(const EngineCase& one, const Scenario& scenario);

// Runs `other` and demands that it equals the base, in these kinds (all, if there are none).
// Returns the run.
EngineRun expect_base(EngineCase& one, const RunRequest& other, const std::string& choices = "",
                      const std::set<std::string>& kinds = {}, bool padding_too = true);

Applies always, has_graphs, offloads, recomputes, is_sharded, is_sharded_on_few_ranks,
    has_neighbours, has_padding, is_row_invariant, has_two_layouts, has_two_microbatches, is_scaled,
    has_interludes, has_amplifiers, has_counters, has_several_in_flight, has_optimizer,
    has_derivative, has_oracle;
Judge repeat, graphs, offload, recompute, sharding, sharding_all, neighbours, one_voice_document,
    padding, place, a_b_a, one_voice_microbatch, scale, interludes, amplified, counters, in_flight,
    update, derivative, oracle;

}  // namespace lockstep::foreign
