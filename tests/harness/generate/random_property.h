// Properties of random scenarios. RapidCheck draws the choices that the generator consumes, so that
// it shrinks by leaving choices out; a failure prints the smallest case and the RC_PARAMS that draw
// it again.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/subprocess.h"
#include "harness/generate/choices.h"
#include "harness/generate/parts.h"
#include "harness/run/worker.h"
#include "kernels/core/fault.h"
#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "tests/engine/train/training_run.h"
#include "tests/support/patience.h"

namespace lockstep::test {

// RapidCheck's hundred would take a minute; RC_PARAMS has the last word.
inline void draw_at_most(int scenarios) {
  ::setenv("RC_PARAMS", ("max_success=" + std::to_string(scenarios)).c_str(), 0);
}

// How many RC_PARAMS asks for, as RapidCheck reads it.
inline int scenarios_asked_for(int otherwise) {
  const char* parameters = std::getenv("RC_PARAMS");
  const std::string text = parameters ? parameters : "", key = "max_success=";
  const std::size_t place = text.find(key);
  return place == std::string::npos ? otherwise : std::atoi(text.c_str() + place + key.size());
}

// The error in what the choices draw, or "". A draw that leaves nothing to compare throws, and does
// not count.
using Property = std::function<std::string(Choices&)>;
struct NothingToCompare {};

inline void hold(const std::string& claim, const Property& property) {
  constexpr int kShrinks =
      100;           // Runs after a failure, of which RapidCheck itself would do any number.
  int shrinks = -1;  // None before the first failure.
  std::string
      smallest;  // The last that failed: RapidCheck itself draws it again, behind the last shrink.
  int compared = 0;
  const auto wrong_in = [&](Choices& choices) -> std::string {
    try {
      std::string wrong = property(choices);
      ++compared;
      return wrong;
    } catch (const NothingToCompare&) {
      RC_DISCARD("nothing to compare");
    }
  };
  const bool held = rc::check(claim, [&] {
    if (shrinks >= 0 && ++shrinks > kShrinks)
      return;  // Nothing smaller fails, as far as anybody looks.
    Choices choices(*rc::gen::resize(
        200, rc::gen::container<std::vector<std::uint64_t>>(rc::gen::arbitrary<std::uint64_t>())));
    const std::string wrong = wrong_in(choices);
    if (wrong.empty()) return;
    shrinks = std::max(shrinks, 0);
    smallest = wrong;
    RC_FAIL("see below");
  });
  EXPECT_TRUE(held) << claim << ": " << smallest;
  std::printf("%s: %d compared on %s\n", claim.c_str(), compared, device_under_test().c_str());
}

inline bool differs_somewhere(const Property& property) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Choices choices(seed);
    try {
      if (!property(choices).empty()) return true;
    } catch (const NothingToCompare&) {
    }
  }
  return false;
}

// An engine that aborts, or gives up by itself, has seen it too; one that does not end has not.
inline bool is_seen(const char* fault, const Property& property) {
  const auto body = [&] {
    plant_fault(fault);
    return std::string(differs_somewhere(property) ? "differs" : "equal");
  };
  const ChildEnd end = run_in_child(body, 60 * patience());
  EXPECT_FALSE(end.timed_out) << fault;
  return !end.timed_out && end.output != "equal";
}

// Properties that change the microbatches, the depth or the graphs have one chunk: others of them
// are not built, or have another depth.
inline void leave_out_the_schedule(Scenario& s) {
  s.parallel.pipeline = s.parallel.chunks = s.parallel.group = s.parallel.expert = 1;
  s.parallel.schedule = PipelineSchedule::one_forward_one_backward;
  s.training.in_flight = std::min(s.training.in_flight, fewest_microbatches(s.training));
  if (!captures_copies(s)) s.offload.captured = false;  // L30: the fraction is of each stage.
}

// One rank has fewer microbatches, so that masks and capacities may not fit them; several ranks
// have tests of their own.
inline Scenario on_one_rank(Scenario s) {
  s.training.resume_at.clear();
  leave_out_the_schedule(s);
  if (s.parallel.data == 1) return s;
  s.parallel = {};
  s.fsdp = {};
  s.fp8.param_gather = false;  // L49
  s.checker.delays.clear();
  if (check_legality(s).empty()) return s;
  s.data.mask = {};
  s.cuda_graph.max_packed_seqs = {4096};
  s.cuda_graph.max_seqlen.reset();
  if (check_legality(s).empty()) return s;
  s.data.kind = DataKind::lengths;
  s.data.distribution = {};
  s.data.documents = {{{2}}};
  return s;
}

// Throws unless a change gave something else that can run.
inline void require_another(const Scenario& before, const Scenario& after) {
  const auto runs = [](const Scenario& s) {
    return check_legality(s).empty() && check_built(s).empty();
  };
  if (!runs(before) || !runs(after) || to_yaml(before) == to_yaml(after)) throw NothingToCompare{};
}

// Removes what a changed scenario may no longer offload, delay, or keep in temporary buffers. No
// bit depends on any.
inline void leave_out_what_is_refused(Scenario& s) {
  if (check_legality(s).empty()) return;
  s.offload = {};
  s.checker.delays.clear();
  s.fsdp.double_buffer = s.fsdp.persist_buf_on_alloc_fail = true;
  if (!check_legality(s).empty()) s.cuda_graph.capture_passes = 0;
}

// The same in fp8, by either recipe. Inputs are saved where they must be.
inline Scenario in_fp8(Scenario s, Choices& c) {
  s.numerics = {Numerics::fp8};
  widen_for_fp8(s.model);
  s.data.pack_length = (s.data.pack_length + 15) / 16 * 16;
  s.fp8 = {};
  s.fp8.save_original_input = implied_original_inputs(s.model);
  s.fp8.weight_cache = default_weight_cache(s);
  const bool delays = c.one_in(2) && (!with_graphs(s) || s.cuda_graph.warmup_steps > 0);
  if (delays) s.fp8.recipe = Fp8Recipe::delayed;
  s.fp8.history = c.pick<std::int64_t>({2, 1, 3});
  leave_out_what_is_refused(s);
  return s;
}

}  // namespace lockstep::test
