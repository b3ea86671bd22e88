#include "harness/generate/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/expect/offload_bytes.h"
#include "harness/generate/case.h"
#include "harness/generate/features.h"
#include "harness/generate/held.h"
#include "harness/generate/parts.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

Scenario generate(std::uint64_t seed) {
  Choices choices(seed);
  return generate_scenario(choices);
}

TEST(Generator, MakesOnlyLegalScenariosThatAreBuilt) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Scenario s = generate(seed);
    const std::vector<ScenarioError> illegal = check_legality(s);
    ASSERT_TRUE(illegal.empty()) << "seed " << seed << ": " << illegal.front().text() << "\n"
                                 << to_yaml(s);
    const std::vector<ScenarioError> unbuilt = check_built(s);
    ASSERT_TRUE(unbuilt.empty()) << "seed " << seed << ": " << unbuilt.front().text();
  }
}

// Codes have fewer bytes than inputs, so that offload.min_bytes may leave nothing; and rare sizes
// times wide rows would take the oracle minutes.
TEST(Generator, DrawsFp8ThatOffloadsSomethingAndCostsLittle) {
  int offloads = 0;
  for (std::uint64_t seed = 0; seed < 60'000; ++seed) {
    Choices choices(seed);
    const Scenario s = generate_scenario(
        choices, seed % 2 == 0 ? RareSize::ends_of_the_vocabulary : RareSize::none);
    if (s.numerics.front() != Numerics::fp8) continue;
    if (s.offload.min_bytes > 0) {
      const OffloadDemand demand = offload_demand(s);
      ++offloads;
      ASSERT_TRUE(demand.fixed > 0 || demand.follows_the_data()) << "seed " << seed << "\n"
                                                                 << to_yaml(s);
    }
    ASSERT_LE(s.model.vocab * s.model.hidden, std::int64_t{1} << 22) << "seed " << seed;
  }
  EXPECT_GE(offloads, 10);
}

// Longer sums take a longer document, which may fit no graph.
TEST(Generator, LengthensNoDocumentThatGraphsHaveToFit) {
  Scenario short_documents;
  short_documents.name = "short";
  short_documents.model.pattern = "-";
  short_documents.data.documents = {{{2}}, {{2}}};
  short_documents.training.recapture_at = {2};
  short_documents.training.eval_every = 1;
  short_documents.cuda_graph.max_seqlen = 2;
  short_documents.cuda_graph.evaluation = GraphEvaluation::replay;
  ASSERT_TRUE(check_legality(short_documents).empty());
  ASSERT_TRUE(captures_what_it_asks(short_documents));
  int wide = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Scenario s = short_documents;
    Choices choices(seed);
    draw_fp8(choices, false, s);
    EXPECT_TRUE(captures_what_it_asks(s)) << "seed " << seed << "\n" << to_yaml(s);
    wide += s.numerics.front() == Numerics::fp8 && s.model.hidden == 144;
  }
  EXPECT_GT(wide, 0);
}

TEST(Generator, ReplaysItsChoices) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Choices first(seed);
    const std::string want = canonical_form(generate_scenario(first));
    Choices second(first.taken());
    EXPECT_EQ(canonical_form(generate_scenario(second)), want) << "seed " << seed;
    EXPECT_EQ(second.taken(), first.taken());
  }
}

// Any edit of the sequence is a legal scenario too: what a shrinker relies on.
TEST(Generator, StaysLegalWhenItsChoicesAreEdited) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Choices first(seed);
    generate_scenario(first);
    std::vector<std::uint64_t> edited = first.taken();
    const std::size_t at = static_cast<std::size_t>(seed * 7) % edited.size();
    switch (seed % 3) {
      case 0:
        edited.resize(at);
        break;
      case 1:
        edited.erase(edited.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        edited[at] += 1 + seed;
    }
    Choices second(edited);
    const Scenario s = generate_scenario(second);
    const std::vector<ScenarioError> errors = check_legality(s);
    EXPECT_TRUE(errors.empty()) << "seed " << seed << ": " << errors.front().text() << "\n"
                                << to_yaml(s);
  }
}

// Every feature, and every boundary that tests are for, is drawn often enough to meet the others.
TEST(Generator, DrawsEveryFeatureAndBoundary) {
  constexpr int kCases = 3000;
  Distribution drawn;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) drawn.add(features_of(generate(seed)));
  for (std::size_t i = 0; i < trait_names().size(); ++i) {
    EXPECT_GE(drawn.count(i), trait_names()[i].rare ? 0 : kCases / 100) << trait_names()[i].name;
  }
}

// Tensors that leave the device late must not be overwritten by the layers of experts in between:
// one or none there cannot.
TEST(Generator, DrawsCopiesThatWaitBeyondFurtherLayersOfExperts) {
  int drawn = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Scenario s = generate(seed);
    drawn += s.offload.delay_until_cuda_graph &&
             std::count(s.model.pattern.begin(), s.model.pattern.end(), 'E') >= 3;
  }
  EXPECT_GE(drawn, 30);
}

// On stages of one chunk and of several, with a fraction of what is left.
TEST(Generator, DrawsStagesThatOffloadLess) {
  int drawn = 0, with_chunks = 0, with_a_fraction = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const Scenario s = generate(seed);
    if (s.parallel.pipeline == 1 || s.offload.delta_bytes == 0) continue;
    ++drawn;
    with_chunks += s.parallel.chunks > 1;
    with_a_fraction += s.offload.fraction.millionths < 1'000'000;
  }
  EXPECT_GE(drawn, 60);
  EXPECT_GE(with_chunks, 15);
  EXPECT_GE(with_a_fraction, 15);
}

// By how many powers of ten the norms of a model raise the gradients of a row of zeros.
double digits_of_norms(const Scenario::Model& m) {
  double norms = 1;
  for (const char symbol : m.pattern) norms += symbol == 'M' ? 2 : 1;
  return -std::log10(m.norm_eps) / 2 * norms;
}

// Dropout makes rows of zeros. Where their gradients leave the range of fp32, oracle and engine
// have a NaN, and the case is a false alarm.
TEST(Generator, KeepsGradientsOfRowsOfZerosFinite) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Scenario::Model m = generate(seed).model;
    if (m.dropout == Ratio{}) continue;
    EXPECT_LT(digits_of_norms(m), 34) << "seed " << seed;
  }
  int saved = 0;  // Models that 1e-8 would take out of the range.
  for (std::uint64_t seed = 3000; seed < 60'000 && saved == 0; ++seed) {
    Scenario::Model m = generate(seed).model;
    if (m.dropout == Ratio{}) continue;
    EXPECT_LT(digits_of_norms(m), 34) << seed;
    const bool is_small = m.norm_eps <= 1e-6;
    m.norm_eps = 1e-8;
    saved += is_small && digits_of_norms(m) >= 34;
  }
  EXPECT_GT(saved, 0);
}

TEST(Generator, LetsEveryPairOfFeaturesMeet) {
  Distribution drawn;
  for (std::uint64_t seed = 0; seed < 30'000; ++seed) drawn.add(features_of(generate(seed)));
  for (const auto& [a, b] : drawn.never_met()) {
    ADD_FAILURE() << trait_names()[a].name << " and " << trait_names()[b].name << " never met";
  }
  EXPECT_EQ(drawn.pairs_met(), Distribution::pairs_that_can_meet());
}

// Features that are said to exclude each other do.
TEST(Generator, NeverDrawsWhatCannotMeet) {
  Distribution drawn;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) drawn.add(features_of(generate(seed)));
  for (std::size_t a = 0; a < trait_names().size(); ++a) {
    for (std::size_t b = a + 1; b < trait_names().size(); ++b) {
      if (can_meet(a, b)) continue;
      EXPECT_EQ(drawn.count(a, b), 0) << trait_names()[a].name << " and " << trait_names()[b].name;
    }
  }
}

}  // namespace
}  // namespace lockstep
