// What a profiler is told of a run: steps, and in them microbatches, layers and parts.
#include "engine/place_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/trainer.h"
#include "tests/engine/on_sim.h"

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

TEST(PlaceRanges, NestPlacesInSteps) {
  Listener listener;
  {
    PlaceRanges ranges(&listener);
    ranges.at({});
    ranges.at({.step = 0, .part = "initialize"});
    ranges.at({.step = 0, .microbatch = 1, .layer = 2, .part = "qkv"});
    ranges.at({.step = 0, .microbatch = 1, .layer = 2, .part = "qkv"});
    ranges.at({.step = 1, .microbatch = 1, .layer = 2, .part = "qkv"});
    ranges.at({.step = 1, .microbatch = 0, .rank = 3});
    ranges.at({.step = 1});
  }
  EXPECT_EQ(listener.lines,
            (std::vector<std::string>{"+step 0", "+initialize", "-initialize", "+microbatch 1, layer 2, qkv",
                                      "-microbatch 1, layer 2, qkv", "-step 0", "+step 1",
                                      "+microbatch 1, layer 2, qkv", "-microbatch 1, layer 2, qkv",
                                      "+rank 3, microbatch 0", "-rank 3, microbatch 0", "-step 1"}));
  PlaceRanges(nullptr).at({.step = 1});
}

TEST(PlaceRanges, CoverEagerPassesAndLaunchesOfGraphs) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    Scenario s;
    s.name = "test";
    s.cuda_graph.impl = impl;
    s.cuda_graph.modules.clear();
    const auto data = open_data(s);
    Listener listener;
    {
      Device device(open_sim({.profiler = &listener}));
      Trainer trainer(device, s, *data, {});
      while (trainer.steps_done() < s.training.steps) trainer.step();
    }
    EXPECT_TRUE(listener.open.empty());
    const std::set<std::string> told(listener.lines.begin(), listener.lines.end());
    for (std::int64_t step = 0; step < s.training.steps; ++step) {
      EXPECT_TRUE(told.contains("+step " + std::to_string(step))) << step;
    }
    EXPECT_TRUE(told.contains("+optimizer"));
    std::string step;  // Which is open: a place begins and ends in it.
    for (const std::string& line : listener.lines) {
      const bool is_step = line.substr(1).starts_with("step ");
      if (is_step) step = line[0] == '+' ? line.substr(1) : "";
      if (!is_step && line.find("microbatch") != std::string::npos) {
        EXPECT_NE(step, "") << line;
      }
    }
    EXPECT_TRUE(std::any_of(told.begin(), told.end(), [&](const std::string& line) {
      return line.find("microbatch 1, layer") != std::string::npos;
    })) << static_cast<int>(impl);
  }
}

}  // namespace
}  // namespace lockstep::test
