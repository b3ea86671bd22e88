// The generator by subject: what is drawn once for a case, and what each subject makes of it.
#pragma once

#include "harness/generate/choices.h"
#include "harness/generate/rare.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The features that a case may use. They are drawn once, so that some cases have few and others
// many. The last group makes a case slow, or concerns few lines of code, and is rarely drawn.
struct Swarm {
  bool mamba, attention, mlp, experts;
  bool dropout, tied, swiglu, masks, gaps, empties, evaluation, recapture, buckets, change,
      schedules, odd_widths, sharding, bf16, constants, large_seeds, distribution;
  bool late_copies;  // Several layers of experts outside of graphs, whose copies wait for the next
                     // graph together.
  bool few_steps, many_steps, many_microbatches, many_ranks, long_packs, truncation, wide;
  RareSize rare;                               // What the case is about, beside all these.
  Transport transport = Transport::automatic;  // Ranks are processes, unless automatic.
  bool cudnn = false;
  bool fp8 = false;  // From the beginning; draw_fp8 makes most cases of it.
};
Swarm draw_swarm(Choices& choices);

inline bool has_experts(const Scenario::Model& m) {
  return m.pattern.find('E') != std::string::npos;
}
inline bool drops_and_pads(const Scenario::Model& m) {
  return m.moe.capacity_factor && m.moe.pad_to_capacity;
}

// Rows of bf16 are whole 16-byte reads and its products take 16 terms at a time (rule L03).
void widen_for_bf16(Scenario::Model& model);
void widen_for_fp8(Scenario::Model& model);
void draw_model(Choices& choices, const Swarm& swarm, Scenario::Model& model);

// Any seed of the schema, where the case has large ones.
std::int64_t draw_seed(Choices& choices, const Swarm& swarm);
// Ranks, steps, microbatches, what the optimizer does.
void draw_training(Choices& choices, const Swarm& swarm, Scenario& scenario);

// Packs, documents and masks. Some step has a target.
void draw_data(Choices& choices, const Swarm& swarm, Scenario& scenario);

// The last of all, so that what a seed draws of the rest stays. `often`: a third of all cases.
void draw_fp8(Choices& choices, bool often, Scenario& scenario);

}  // namespace lockstep
