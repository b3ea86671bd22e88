// Properties that the bits may not depend on: the engine against itself, with no oracle.
// tests/harness/generate/invariance_test.cpp and document_invariance_test.cpp ask the same of
// random scenarios.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "scenarios/io/reader.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

Scenario base(const std::string& pattern = "M*-") {
  Scenario s;
  s.name = "metamorphic";
  s.model.pattern = pattern;
  s.training.steps = 4;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.model.dropout = {100'000};
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}}, {{64}, {3, 4, 20, 15, 9}, {0, 31}}};
  return s;
}

void expect_same_everything(const Scenario& a, const Scenario& b, const SimOptions& sim = {}) {
  const auto data = open_data(a);
  EXPECT_EQ(difference(run(a, *data), run(b, *data, sim)), "");
}

void expect_invariant(const std::function<void(Scenario&)>& change) {
  const Scenario a = base();
  Scenario b = a;
  change(b);
  expect_same_everything(a, b);
}

TEST(Metamorphic, NothingDependsOnCapacity) {
  for (const std::int64_t capacity : {5, 6, 16, 64}) {
    expect_invariant([&](Scenario& s) { s.cuda_graph.max_packed_seqs = {capacity}; });
  }
  expect_invariant([](Scenario& s) { s.cuda_graph.max_packed_seqs = {1, 3, 5}; });
}

TEST(Metamorphic, NothingDependsOnGraphEagerOrFallback) {
  expect_invariant([](Scenario& s) { s.cuda_graph.impl = GraphImpl::none; });
  expect_invariant([](Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; });
  expect_invariant(
      [](Scenario& s) { s.cuda_graph.max_packed_seqs = {2}; });  // Most microbatches fall back.
  for (const GraphModule module : {GraphModule::attn, GraphModule::mlp, GraphModule::mamba}) {
    expect_invariant([&](Scenario& s) { s.cuda_graph.modules = {module}; });
  }
  for (const int warmup : {0, 2, 3})
    expect_invariant([&](Scenario& s) { s.cuda_graph.warmup_steps = warmup; });
  expect_invariant([](Scenario& s) { s.training.recapture_at = {2, 3}; });
  for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
    for (const std::int64_t limit : {1, 100'000}) {
      expect_invariant([&](Scenario& s) {
        s.cuda_graph.impl = impl;
        s.cuda_graph.max_packed_seqs = {1, 3, 5};
        s.cuda_graph.graph_memory_limit = limit;
      });
    }
  }
}

TEST(Metamorphic, NothingDependsOnInFlightDepthOrSlots) {
  for (const int depth : {1, 3}) {
    for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::none, GraphImpl::full_iteration}) {
      expect_invariant([&](Scenario& s) {
        s.training.in_flight = depth;
        s.cuda_graph.impl = impl;
      });
    }
  }
}

TEST(Metamorphic, NothingDependsOnTheScheduleOfStreams) {
  ASSERT_EQ(device_under_test(), "sim")
      << "a GPU runs as it likes: engine.metamorphic.cuda leaves this test out";
  const Scenario s = base();
  for (const auto policy :
       {SimOptions::Policy::program, SimOptions::Policy::lazy, SimOptions::Policy::pct}) {
    expect_same_everything(s, s, {.policy = policy, .seed = 7, .depth = 2});
  }
  for (std::uint64_t seed = 2; seed < 12; ++seed) expect_same_everything(s, s, {.seed = seed});
}

TEST(Metamorphic, NothingDependsOnTheAddressesOfBuffers) {
  const Scenario s = base();
  const auto data = open_data(s);
  const Outcome want = run(s, *data);
  for (const std::size_t ballast : {256u, 4096u, 1000003u}) {
    EXPECT_EQ(difference(want, run(s, *data, {}, nullptr, ballast)), "") << ballast;
  }
}

TEST(Metamorphic, NothingDependsOnWhereARunWasSavedAndResumed) {
  for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
    Scenario s = base();
    s.cuda_graph.impl = impl;
    s.training.optimizer.schedule = LrSchedule::cosine;
    const auto data = open_data(s);
    const Outcome want = run(s, *data);
    for (std::int64_t stop = 1; stop < s.training.steps; ++stop) {
      EXPECT_EQ(difference(want, run_resumed(s, *data, stop)), "")
          << to_text(impl) << " after " << stop;
    }
  }
}

TEST(Metamorphic, TrainingDoesNotDependOnEvaluations) {
  for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
    Scenario s = base();
    s.cuda_graph.impl = impl;
    const auto data = open_data(s);
    Outcome with = run(s, *data);
    EXPECT_EQ(with.evaluations.size(), 2u);
    with.evaluations.clear();
    s.training.eval_every = 0;
    EXPECT_EQ(difference(with, run(s, *data)), "") << to_text(impl);
  }
}

// ---- Documents ----------------------------------------------------------------------------------

// Random documents; those in `own` use tokens that no other document has, each at most once.
struct Documents {
  explicit Documents(std::uint64_t seed, std::vector<std::int64_t> lengths) {
    std::mt19937_64 random(seed);
    std::int32_t next = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t t = 0; t < lengths[i]; ++t) tokens.push_back(next++);
      std::shuffle(tokens.begin(), tokens.end(), random);
      list.push_back(document(static_cast<std::int32_t>(i), tokens));
    }
    vocab = (next + 15) / 16 * 16;
  }
  std::vector<Document> list;
  std::int64_t vocab;
};

Scenario for_documents(const Documents& documents, const std::string& pattern, bool dropout) {
  Scenario s = base(pattern);
  s.model.vocab = documents.vocab;
  s.model.dropout = {dropout ? 200'000 : 0};
  s.training.steps = 2;
  s.training.microbatches = 1;
  s.training.in_flight = 1;
  s.training.eval_every = 0;
  s.training.optimizer.lr = 0;  // Weights stay, so that step 1 (replayed) can be compared too.
  s.training.optimizer.weight_decay = 0;
  return s;
}

// Per document: its token losses, and the gradient of its tokens' embedding rows (its activation
// gradient, since every token occurs once), in every step.
std::vector<std::vector<float>> per_document(const Scenario& s, const std::vector<Document>& order,
                                             std::int64_t n, std::size_t documents) {
  const Outcome r = run(s, FixedData({step_of({{order}}, n)}));
  std::vector<std::vector<float>> seen(documents);
  for (std::size_t step = 0; step < r.steps.size(); ++step) {
    std::int64_t start = 0;
    for (const Document& d : order) {
      std::vector<float>& mine = seen[static_cast<std::size_t>(d.number)];
      const std::size_t length = d.tokens.size();
      const auto first = r.token_losses[step].begin() + start;
      mine.insert(mine.end(), first, first + static_cast<std::ptrdiff_t>(length));
      for (const std::int32_t token : d.tokens) {
        const auto row = r.gradients[step][0].begin() + token * s.model.hidden;
        mine.insert(mine.end(), row, row + s.model.hidden);
      }
      start += slot_rows(static_cast<std::int64_t>(length), s.data.gaps, s.data.align);
    }
  }
  return seen;
}

const std::vector<std::int64_t> kLengths{17, 1,  15,
                                         3,  16, 2};  // 54 of 64 rows; chunk 16, conv width 4.
constexpr std::int64_t kTargets = 48;

TEST(Metamorphic, ADocumentDoesNotSeeItsNeighbours) {
  for (const std::string pattern : {"M*-", "*", "M"}) {
    const Documents all(3, kLengths);
    const Scenario s = for_documents(all, pattern, true);
    const auto together = per_document(s, all.list, kTargets, all.list.size());
    for (const Document& d : all.list) {
      const auto alone = per_document(s, {d}, kTargets, all.list.size());
      const std::size_t i = static_cast<std::size_t>(d.number);
      EXPECT_TRUE(same_bits(together[i], alone[i])) << pattern << ", document " << i;
    }
  }
}

TEST(Metamorphic, ADocumentDoesNotSeeItsPlaceInThePack) {
  for (const std::string pattern : {"M*-", "M-M*-"}) {
    Documents all(5, kLengths);
    Scenario s = for_documents(all, pattern, true);
    const auto want = per_document(s, all.list, kTargets, all.list.size());
    std::mt19937_64 random(9);
    for (int round = 0; round < 4; ++round) {
      std::shuffle(all.list.begin(), all.list.end(), random);
      EXPECT_TRUE(same_bits(want, per_document(s, all.list, kTargets, all.list.size()))) << pattern;
    }
    s.data.gaps = 1;
    EXPECT_TRUE(same_bits(want, per_document(s, all.list, kTargets, all.list.size()))) << "gaps";
    s.data.gaps = 0;
    s.data.align = 2;
    EXPECT_TRUE(same_bits(want, per_document(s, all.list, kTargets, all.list.size()))) << "align";
  }
}

TEST(Metamorphic, ADocumentDoesNotSeeThePaddingBehindThePack) {
  for (const std::string pattern : {"M*-", "M-M*-"}) {
    const Documents all(11, kLengths);
    Scenario s = for_documents(all, pattern, true);
    const auto want = per_document(s, all.list, kTargets, all.list.size());
    for (const std::int64_t length : {54, 55, 65, 96, 200}) {
      s.data.pack_length = length;
      EXPECT_TRUE(same_bits(want, per_document(s, all.list, kTargets, all.list.size())))
          << pattern << " " << length;
    }
  }
}

TEST(Metamorphic, TokenLossesDoNotDependOnTheSplitIntoMicrobatches) {
  const Documents all(7, kLengths);
  Scenario s = for_documents(all, "M*-", false);
  const auto losses = [&](const std::vector<Microbatch>& split) {
    s.training.microbatches = static_cast<std::int64_t>(split.size());
    const Outcome r = run(s, FixedData({step_of(split, kTargets)}));
    std::vector<float> seen;
    for (std::size_t m = 0; m < split.size(); ++m) {
      std::int64_t rows = 0;
      for (const Document& d : split[m].documents)
        rows += static_cast<std::int64_t>(d.tokens.size());
      seen.insert(seen.end(), r.token_losses[m].begin(), r.token_losses[m].begin() + rows);
    }
    return seen;
  };
  const std::vector<float> whole = losses({{all.list}});
  for (std::size_t cut = 1; cut < all.list.size(); ++cut) {
    const auto middle = all.list.begin() + static_cast<std::ptrdiff_t>(cut);
    EXPECT_TRUE(
        same_bits(whole, losses({{{all.list.begin(), middle}}, {{middle, all.list.end()}}})))
        << cut;
  }
}

}  // namespace
}  // namespace lockstep::test
