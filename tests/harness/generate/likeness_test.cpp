// Scenarios around one that a user has: its keys stay, the rest is drawn, and all are legal.
#include "harness/generate/likeness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/generate/case.h"
#include "harness/generate/held.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/schema.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

Likeness like(const std::string& text) {
  const TemporaryFolder folder;
  return Likeness::of_file(folder.file("mine.yaml", "schema: 1\nname: mine\n" + text));
}

std::vector<Scenario> drawn(const Likeness& mine, int count, const Outside& outside = {}) {
  std::vector<Scenario> list;
  for (int i = 0; i < count; ++i) list.push_back(make_case(3, i, "small", outside, &mine).scenario);
  return list;
}

std::string value(const Scenario& s, const std::string& key) {
  return find_key(key)->write(s, Style::json);
}

// The keys of the file that have another value.
std::vector<std::string> changed(const Likeness& mine, const Scenario& s) {
  std::vector<std::string> keys;
  for (const std::string& key : mine.keys()) {
    if (key == "schema" || key == "name" || key.starts_with("expect.")) continue;
    if (!find_key(key)->counts(mine.scenario())) continue;
    const bool among =
        key == "numerics" && std::ranges::count(mine.scenario().numerics, s.numerics.front()) > 0;
    if (!among && value(s, key) != value(mine.scenario(), key)) keys.push_back(key);
  }
  return keys;
}

constexpr const char* kMine =
    "numerics: [fp32, bf16]\n"
    "model: {pattern: \"M*-\", hidden: 48, vocab: 64, attention: {heads: 4, kv_heads: 2, head_dim: "
    "16}}\n"
    "training: {steps: 3, microbatches: 4}\n"
    "cuda_graph: {impl: partial}\n"
    "parallel: {data: 2}\nfsdp: {strategy: optim_grads_params}\n";

TEST(Likeness, KeepsWhatTheFileNamesAndDrawsTheRest) {
  const Likeness mine = like(kMine);
  int kept = 0;
  std::set<std::string> forms, freed, learning_rates, precisions;
  for (const Scenario& s : drawn(mine, 200)) {
    const std::vector<std::string> other = changed(mine, s);
    EXPECT_LE(other.size(), 1u) << testing::PrintToString(other);
    kept += other.empty();
    freed.insert(other.begin(), other.end());
    forms.insert(canonical_form(s));
    precisions.insert(value(s, "numerics"));
    EXPECT_TRUE(check_legality(s).empty()) << to_yaml(s);
    EXPECT_TRUE(check_built(s).empty());
  }
  EXPECT_GE(kept, 140);  // Three in four, and those whose freed key was drawn as it was.
  EXPECT_LE(kept, 195);
  EXPECT_GE(freed.size(), 4u);
  EXPECT_EQ(forms.size(), 200u);
  EXPECT_EQ(precisions.size(), 3u);  // The two of the file, and fp8 where their key is freed.
}

TEST(Likeness, IsTheSameForTheSameSeed) {
  const Likeness mine = like(kMine);
  const std::vector<Scenario> first = drawn(mine, 20), second = drawn(mine, 20);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(canonical_form(first[i]), canonical_form(second[i]));
  EXPECT_NE(canonical_form(first[0]), canonical_form(make_case(4, 0, "small", {}, &mine).scenario));
  EXPECT_EQ(mine.identity(), like(kMine).identity());
  EXPECT_NE(mine.identity(), like(std::string(kMine) + "checker: {hazards: true}\n").identity());
}

// A file that names nothing leaves everything to be drawn, graphs and offloading too.
TEST(Likeness, DrawsAllWhereTheFileNamesNothing) {
  int graphs = 0, offloads = 0, ranks = 0;
  for (const Scenario& s : drawn(like(""), 200)) {
    graphs += with_graphs(s);
    offloads += with_offload(s);
    ranks += s.parallel.data > 1;
  }
  EXPECT_GT(std::min({graphs, offloads, ranks}), 10);
}

TEST(Likeness, KeepsListedDocumentsWithTheirPacks) {
  const Likeness mine = like("data: {pack_length: 32, documents: [[[7, 5], [9]], [[3], [32]]]}\n");
  std::set<std::int64_t> steps;
  for (const Scenario& s : drawn(mine, 60)) {
    EXPECT_LE(changed(mine, s).size(), 1u);
    EXPECT_EQ(s.data.kind, DataKind::lengths);
    steps.insert(s.training.steps);
  }
  EXPECT_GE(steps.size(), 4u);
}

TEST(Likeness, MeetsWhatACampaignIsAskedToReach) {
  int processes = 0;
  for (const Scenario& s : drawn(like("model: {hidden: 32}\n"), 40, {.processes = true})) {
    EXPECT_TRUE(check_legality(s).empty());
    processes += s.parallel.transport == Transport::shm && s.parallel.data > 1;
  }
  EXPECT_GT(processes, 30);
}

TEST(Likeness, RefusesAFileThatIsRefused) {
  EXPECT_THROW(like("training: {steps: -1}\n"), RequestError);
  EXPECT_THROW(Likeness::of_file("/no/such/file.yaml"), RequestError);
}

// A weight decay that was drawn with a tiny learning rate would let weights grow beside the file's.
TEST(Likeness, KeepsWeightsFinite) {
  const Likeness mine = like(
      "numerics: [fp8]\nmodel: {pattern: \"-\", hidden: 32, mlp: {hidden: 32}}\n"
      "training: {steps: 4, optimizer: {lr: 0.02}}\n");
  int with_own_decay = 0;
  for (const Scenario& s : drawn(mine, 200)) {
    const Scenario::Training::Optimizer& o = s.training.optimizer;
    EXPECT_LE(o.lr * o.weight_decay, 1) << to_yaml(s);
    with_own_decay += o.weight_decay != mine.scenario().training.optimizer.weight_decay;
  }
  EXPECT_GT(with_own_decay, 5);
}

// What is drawn around documents that are few leaves nothing vacuous: graphs replay, recaptures
// have graphs to tear down.
TEST(Likeness, AsksForNothingThatDoesNotHappen) {
  const Likeness mine = like(
      "cuda_graph: {impl: partial, max_packed_seqs: 3}\n"
      "training: {steps: 4, microbatches: 1, eval_every: 2}\n"
      "data: {pack_length: 32, documents: [[[7, 5]], [[1, 1, 1, 1, 1]], [[2, 2, 2, 2]]]}\n");
  int recaptures = 0;
  for (const Scenario& s : drawn(mine, 100)) {
    EXPECT_TRUE(does_what_it_asks(s)) << to_yaml(s);
    recaptures += !s.training.recapture_at.empty();
  }
  EXPECT_GT(recaptures, 5);
  Scenario early = mine.scenario();  // Its graphs are for the first step's documents alone.
  EXPECT_TRUE(does_what_it_asks(early));
  early.cuda_graph.warmup_steps = 1;
  early.training.recapture_at = {3};
  EXPECT_FALSE(does_what_it_asks(early));
}

// Of each file of the library most draws fit its keys, so the file alone is seldom what is left.
TEST(Likeness, FitsTheFilesOfTheLibrary) {
  int files = 0, all = 0, own = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(library_path())) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const ReadResult read = read_scenario_file(entry.path().string());
    if (!read.ok()) continue;
    const Likeness mine(read.scenario, read.keys);
    for (Scenario s : drawn(mine, 5)) {
      EXPECT_TRUE(check_legality(s).empty()) << entry.path();
      ++all;
      Scenario file = mine.scenario();
      file.name = s.name;
      file.numerics = s.numerics;
      file.expect = {};
      file.checker.schedule.seed = s.checker.schedule.seed;
      own += canonical_form(file) == canonical_form(s);
    }
  }
  EXPECT_GE(files, 300);
  EXPECT_LE(own, all / 16) << own << " of " << all;
  std::printf("%d of %d draws are the file's own\n", own, all);
}

}  // namespace
}  // namespace lockstep
