// The ranges that a profiler sees of a run: steps, and in them microbatches, layers and parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/device/profiler_ranges.h"
#include "engine/train/trainer.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

// Writes down what begins and ends, and expects that nothing ends twice.
struct Listener : Profiler {
  std::uint64_t begin(const std::string& name) override {
    lines.push_back("+" + name);
    open.emplace(++last, name);
    return last;
  }
  void end(std::uint64_t range) noexcept override {
    const auto found = open.find(range);
    EXPECT_NE(found, open.end());
    if (found == open.end()) return;
    lines.push_back("-" + found->second);
    open.erase(found);
  }
  std::vector<std::string> lines;
  std::map<std::uint64_t, std::string> open;
  std::uint64_t last = 0;
};

TEST(ProfilerRanges, NestPlacesInSteps) {
  Listener listener;
  {
    ProfilerRanges ranges(&listener);
    ranges.at({}, false);
    ranges.at({.step = 0, .part = "initialize"}, false);
    ranges.at({.step = 0, .microbatch = 1, .layer = 2, .part = "qkv"}, false);
    ranges.at({.step = 0, .microbatch = 1, .layer = 2, .part = "qkv"}, false);
    ranges.at({.step = 1, .microbatch = 1, .layer = 2, .part = "qkv"}, false);
    ranges.at({.step = 1, .microbatch = 0, .rank = 3}, false);
    ranges.at({.step = 1, .layer = 4}, true);
    ranges.at({.step = 1}, false);
    ranges.leave();
    ranges.leave();
    ranges.at({.step = 1}, false);
  }
  EXPECT_EQ(listener.lines,
            (std::vector<std::string>{
                "+step 0", "+initialize", "-initialize", "+microbatch 1, layer 2, qkv",
                "-microbatch 1, layer 2, qkv", "-step 0", "+step 1", "+microbatch 1, layer 2, qkv",
                "-microbatch 1, layer 2, qkv", "+rank 3, microbatch 0", "-rank 3, microbatch 0",
                "+layer 4, captured", "-layer 4, captured", "-step 1", "+step 1", "-step 1"}));
  ProfilerRanges(nullptr).at({.step = 1}, false);
}

// The names that are open as graphs are launched, and as ops are submitted. A graph of a block
// begins, backward, with its last layer.
struct Watcher : Observer {
  explicit Watcher(const Listener& listener) : listener(listener) {}
  void on_call(const IssuedCall& issued) override {
    if (issued.as<SubmitCall>()) note(ops);
    if (issued.as<LaunchCall>()) note(launches);
  }
  void note(std::set<std::string>& names) const {
    std::string all;
    for (const auto& [number, name] : listener.open) all += (all.empty() ? "" : ": ") + name;
    names.insert(all);
  }
  const Listener& listener;
  std::set<std::string> ops, launches;
};

struct Told {
  std::set<std::string> ops, launches;
};
Told run(GraphImpl impl) {
  Scenario s;
  s.name = "test";
  s.model.pattern = "M*-";
  s.training.eval_every = 1;
  s.cuda_graph.impl = impl;
  s.cuda_graph.modules.clear();
  if (impl == GraphImpl::partial) s.cuda_graph.modules = {GraphModule::attn, GraphModule::mlp};
  const auto data = open_data(s);
  Listener listener;
  Watcher watcher(listener);
  Device device(open_sim({.profiler = &listener}), &watcher);
  Trainer trainer(device, s, *data, {});
  while (trainer.steps_done() < s.training.steps) {
    trainer.step();
    EXPECT_TRUE(listener.open.empty()) << "between steps";
    trainer.evaluate();
    EXPECT_TRUE(listener.open.empty()) << "behind an evaluation";
  }
  return {watcher.ops, watcher.launches};
}

TEST(ProfilerRanges, NameTheLayersOfEagerPasses) {
  const Told eager = run(GraphImpl::none);
  EXPECT_TRUE(eager.launches.empty());
  for (const char* name : {"step 0: microbatch 0, embedding", "step 2: microbatch 1, layer 1, qkv",
                           "step 2: microbatch 1, layer 1, backward, qkv",
                           "step 0: microbatch 1, backward, embedding", "step 1: optimizer"}) {
    EXPECT_THAT(eager.ops, testing::Contains(name));
  }
}

TEST(ProfilerRanges, NameTheLayersOfGraphsAsTheyAreLaunched) {
  const Told partial = run(GraphImpl::partial);
  for (const char* name : {"step 1: microbatch 0, layer 1, forward graph",
                           "step 1: microbatch 1, layer 2, backward graph",
                           "step 2: microbatch 1, layer 2, backward graph"}) {
    EXPECT_THAT(partial.launches, testing::Contains(name));
  }
  EXPECT_THAT(partial.ops, testing::Contains(testing::HasSubstr("layer 1, qkv, captured")));
  const Told whole = run(GraphImpl::full_iteration);
  EXPECT_THAT(whole.launches, testing::Contains("step 2: iteration graph"));
}

}  // namespace
}  // namespace lockstep::test
