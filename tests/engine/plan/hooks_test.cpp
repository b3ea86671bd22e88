// Hooks run in order, around a region as eagerly, and are back in their places whatever happened.
#include "engine/plan/hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/ranks.h"
#include "engine/train/trainer.h"
#include "kernels/core/fault.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

constexpr HookPoint kPoints[] = {HookPoint::forward_pre, HookPoint::forward_post,
                                 HookPoint::backward_pre, HookPoint::backward_post};

class HooksTest : public ::testing::Test {
 protected:
  HooksTest() {
    for (int module = 0; module < 3; ++module) {
      for (const HookPoint point : kPoints) add(module, point, module == 1 ? 2 : 1);
    }
  }
  static std::string name(int module, HookPoint point, int hook) {
    static constexpr const char* kNames[] = {"<f", ">f", "<b", ">b"};
    return kNames[static_cast<int>(point)] + std::to_string(module) +
           std::string(static_cast<std::size_t>(hook), '\'');
  }
  void add(int module, HookPoint point, int count) {
    for (int hook = 0; hook < count; ++hook) {
      hooks_.add(module, point, [this, text = name(module, point, hook)](const HookCall& call) {
        said_ += text + ":" + std::to_string(call.microbatch) + " ";
      });
    }
  }
  // The hooks that a forward pass of modules 1 and 2 runs.
  static std::vector<ExtractedHooks::List> region() {
    return {{1, HookPoint::forward_pre},
            {1, HookPoint::forward_post},
            {2, HookPoint::forward_pre},
            {2, HookPoint::forward_post}};
  }
  std::string all(const HookCall& call = {}) {
    said_.clear();
    for (int module = 0; module < 3; ++module) {
      for (const HookPoint point : kPoints) hooks_.run(module, point, call);
    }
    return said_;
  }
  Hooks hooks_{3};
  std::string said_;
};

TEST_F(HooksTest, RunInTheOrderInWhichTheyWereAdded) {
  hooks_.run(1, HookPoint::backward_post, {.microbatch = 3, .last = true});
  EXPECT_EQ(said_, ">b1:3 >b1':3 ");
}

TEST_F(HooksTest, OfARegionRunAroundItAndNotInside) {
  ExtractedHooks extracted(hooks_, region());
  extracted.run_before({.microbatch = 1});
  said_ += "| ";
  for (const ExtractedHooks::List& list : region()) hooks_.run(list.module, list.point, {});
  said_ += "| ";
  extracted.run_after({.microbatch = 1});
  EXPECT_EQ(said_, "<f1:1 <f1':1 <f2:1 | | >f1:1 >f1':1 >f2:1 ");
}

TEST_F(HooksTest, OutsideOfARegionStay) {
  const std::string before = all();
  {
    const ExtractedHooks extracted(hooks_, region());
    EXPECT_EQ(all(), "<f0:0 >f0:0 <b0:0 >b0:0 <b1:0 <b1':0 >b1:0 >b1':0 <b2:0 >b2:0 ");
  }
  EXPECT_EQ(all(), before);
}

TEST_F(HooksTest, AreBackAfterAFailure) {
  const std::string before = all();
  try {
    const ExtractedHooks extracted(hooks_, region());
    throw std::runtime_error("the capture failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(all(), before);
}

// One region in another: the inner one finds what the outer one left, and gives that back.
TEST_F(HooksTest, OfNestedRegionsAreBackInTurn) {
  const std::string before = all();
  {
    const ExtractedHooks outer(hooks_, {{1, HookPoint::forward_pre}});
    {
      ExtractedHooks inner(hooks_, {{1, HookPoint::forward_pre}, {0, HookPoint::forward_pre}});
      EXPECT_EQ(hooks_.count(0, HookPoint::forward_pre), 0u);
      said_.clear();
      inner.run_before({});
      EXPECT_EQ(said_, "<f0:0 ");
    }
    EXPECT_EQ(hooks_.count(0, HookPoint::forward_pre), 1u);
    EXPECT_EQ(hooks_.count(1, HookPoint::forward_pre), 0u);
  }
  EXPECT_EQ(all(), before);
}

// Module 0 has a plain hook at each point, and forward hooks that wrap its input and its output.
class WrappedHooksTest : public ::testing::Test {
 protected:
  WrappedHooksTest() {
    add("<f", HookPoint::forward_pre);
    add(">f", HookPoint::forward_post);
    add("<b", HookPoint::backward_pre);
    add(">b", HookPoint::backward_post);
    hooks_.wrap(0, HookPoint::forward_pre, says("release"));
    hooks_.wrap(0, HookPoint::forward_post, says("gather"));
  }
  Hooks::Hook says(std::string text) {
    return [this, text = std::move(text)](const HookCall& call) {
      said_ += text + std::to_string(call.microbatch) + " ";
    };
  }
  void add(const char* text, HookPoint point) { hooks_.add(0, point, says(text)); }
  void forward(const HookCall& call) {
    hooks_.run(0, HookPoint::forward_pre, call);
    hooks_.run(0, HookPoint::forward_post, call);
  }
  void backward(const HookCall& call) {
    hooks_.run(0, HookPoint::backward_pre, call);
    said_ += "| ";
    hooks_.run(0, HookPoint::backward_post, call);
  }
  std::string both(const HookCall& call) {
    said_.clear();
    forward(call);
    backward(call);
    return said_;
  }
  static std::vector<ExtractedHooks::List> of(bool forward) {
    if (forward) return {{0, HookPoint::forward_pre}, {0, HookPoint::forward_post}};
    return {{0, HookPoint::backward_pre}, {0, HookPoint::backward_post}};
  }
  static std::vector<ExtractedHooks::List> of_both() {
    std::vector<ExtractedHooks::List> all = of(true);
    for (const auto& list : of(false)) all.push_back(list);
    return all;
  }
  Hooks hooks_{1, 2};
  std::string said_;
};

TEST_F(WrappedHooksTest, RunOnceInTheBackwardPassOfTheirMicrobatch) {
  forward({.microbatch = 4, .slot = 0});
  forward({.microbatch = 5, .slot = 1});
  EXPECT_EQ(said_, "<f4 >f4 <f5 >f5 ");
  said_.clear();
  backward({.microbatch = 4, .slot = 0});
  EXPECT_EQ(said_, "<b4 gather4 | release4 >b4 ");
  said_.clear();
  backward({.microbatch = 4, .slot = 0});
  EXPECT_EQ(said_, "<b4 | >b4 ");
  said_.clear();
  backward({.microbatch = 5, .slot = 1});
  EXPECT_EQ(said_, "<b5 gather5 | release5 >b5 ");
}

TEST_F(WrappedHooksTest, WrapNothingInAnEvaluation) {
  forward({.training = false});
  said_.clear();
  backward({});
  EXPECT_EQ(said_, "<b0 | >b0 ");
}

TEST_F(WrappedHooksTest, AreForgottenWithAStepThatFailed) {
  forward({.slot = 1});
  hooks_.forget_handlers();
  said_.clear();
  backward({.slot = 1});
  EXPECT_EQ(said_, "<b0 | >b0 ");
}

TEST_F(WrappedHooksTest, RunAroundReplaysAsTheyRunEagerly) {
  for (const bool eager_forward : {false, true}) {
    said_.clear();
    const HookCall call{.microbatch = 2, .slot = 1};
    if (eager_forward) {
      forward(call);
    } else {
      ExtractedHooks hooks(hooks_, of(true), call.slot);
      hooks.run_before(call);
      forward(call);  // The dry run of the region.
      hooks.run_after(call);
    }
    {
      ExtractedHooks hooks(hooks_, of(false), call.slot);
      hooks.run_before(call);
      backward(call);
      hooks.run_after(call);
    }
    EXPECT_EQ(said_, "<f2 >f2 <b2 gather2 | release2 >b2 ");
  }
  EXPECT_EQ(both({}), "<f0 >f0 <b0 gather0 | release0 >b0 ");
}

TEST_F(WrappedHooksTest, AreWithheldFromACaptureAndWaitOn) {
  const HookCall call{.microbatch = 7, .slot = 1};
  forward(call);  // In flight while the graphs of another bucket are captured.
  said_.clear();
  {
    const ExtractedHooks hooks(hooks_, of_both(), call.slot);
    forward(call);
    backward(call);
    EXPECT_EQ(said_, "| ");
  }
  said_.clear();
  backward(call);
  EXPECT_EQ(said_, "<b7 gather7 | release7 >b7 ");
}

TEST_F(WrappedHooksTest, AreGivenToACaptureAsBackwardHooks) {
  {
    ExtractedHooks hooks(hooks_, of_both(), 0);
    for (int pass = 0; pass < 2; ++pass) {
      said_.clear();
      for (const HookPoint point : kPoints) hooks.run_given(point, {.microbatch = pass});
      const std::string n = std::to_string(pass);
      EXPECT_EQ(said_, "<f" + n + " >f" + n + " <b" + n + " gather" + n + " release" + n + " >b" +
                           n + " ");
    }
  }
  said_.clear();
  backward({});
  EXPECT_EQ(said_, "<b0 | >b0 ") << "nothing was wrapped";
  EXPECT_EQ(both({}), "<f0 >f0 <b0 gather0 | release0 >b0 ");
}

// A hook that cannot be copied any more: taking hooks out fails between the phases, behind the
// first list.
struct FailsToBeCopied {
  explicit FailsToBeCopied(bool& fails_) : fails(&fails_) {}
  FailsToBeCopied(FailsToBeCopied&&) = default;
  FailsToBeCopied(const FailsToBeCopied& other) : fails(other.fails) {
    if (*fails) throw std::runtime_error("no copy");
  }
  FailsToBeCopied& operator=(const FailsToBeCopied&) = delete;
  ~FailsToBeCopied() = default;
  void operator()(const HookCall&) const {}
  bool* fails;
};

TEST_F(WrappedHooksTest, AreBackIfTheSecondPhaseFails) {
  const std::string before = both({});
  bool fails = false;
  hooks_.add(0, HookPoint::backward_pre, FailsToBeCopied(fails));
  forward({.slot = 1});
  fails = true;
  EXPECT_THROW(ExtractedHooks(hooks_, of_both(), 1), std::runtime_error);
  fails = false;
  said_.clear();
  backward({.slot = 1});
  EXPECT_EQ(said_, "<b0 gather0 | release0 >b0 ");
  EXPECT_EQ(both({}), before);
}

std::string digest_of(const Scenario& s,
                      const std::function<void(Trainer&, Communicator&)>& steps) {
  const auto data = open_data(s);
  std::string digest;
  Device device(open_device_under_test());
  run_ranks(device, static_cast<int>(s.parallel.data), 1, [&](Communicator& communicator) {
    Trainer trainer(device, s, *data, {.communicator = &communicator});
    steps(trainer, communicator);
    while (trainer.steps_done() < s.training.steps) trainer.step();
    digest = trainer.weight_digest();
    EXPECT_EQ(trainer.counters().at(Counter::graph_replays) > 0,
              s.cuda_graph.impl != GraphImpl::none);
  });
  return digest;
}

// The engine's own: a capture that fails, and a second one, leave a sharded run as it would have
// been.
TEST(HooksOfTheEngine, SurviveACaptureThatFails) {
  for (const auto& [impl, ranks] : {std::pair{GraphImpl::partial, 1},
                                    {GraphImpl::partial, 3},
                                    {GraphImpl::full_iteration, 1}}) {
    Scenario s;
    s.name = "test";
    s.fsdp.strategy = Sharding::optim_grads_params;
    s.training.steps = 5;
    s.parallel.data = ranks;
    s.cuda_graph.impl = GraphImpl::none;
    const std::string want = digest_of(s, [](Trainer&, Communicator&) {});
    s.cuda_graph.impl = impl;
    s.training.recapture_at = {3};
    const auto fails_once = [](Trainer& trainer, Communicator& communicator) {
      trainer.step();
      communicator.barrier();
      plant_fault("allocation-during-capture");
      EXPECT_THROW(trainer.step(), EngineViolation);
      communicator.barrier();  // Every rank has failed.
      plant_fault("");
    };
    EXPECT_EQ(digest_of(s, fails_once), want);
    if (impl != GraphImpl::partial) continue;
    s.cuda_graph.capture_passes = 2;
    EXPECT_EQ(digest_of(s, fails_once), want);
  }
}

// The calls of the engine's hooks, in order.
class ListedCalls final : public Communicator {
 public:
  explicit ListedCalls(Device& device) : calls_(make_self_communicator(device)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    list(name);
    calls_->all_gather(stream, name, to, from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    list(name);
    calls_->all_to_all(stream, name, to, from, bytes);
  }
  void barrier() override {}
  std::vector<std::string> all_gather_object(const std::string& words) override { return {words}; }

  std::string said;

 private:
  void list(const CollectiveName& name) {
    said += std::string(name.purpose) + std::to_string(name.unit) + " ";
  }
  std::unique_ptr<Communicator> calls_;
};

// Whether what is exchanged lies in memory for it. All ranks bring what this one does.
class PlacedCalls final : public Communicator {
 public:
  explicit PlacedCalls(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  DeviceBuffer buffer(Device& device, std::size_t bytes) override {
    DeviceBuffer made(device, bytes);
    const auto* first = static_cast<const std::byte*>(made.data());
    if (bytes > 0) places_.emplace_back(first, first + bytes);
    asked += (bytes + 255) / 256 * 256;
    return made;
  }
  void reserve(std::size_t bytes) override { announced += bytes; }
  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    look(name, to, from, bytes);
    for (int r = 0; r < ranks_; ++r)
      copy(stream, static_cast<std::byte*>(to) + static_cast<std::size_t>(r) * bytes, from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    look(name, to, from, bytes);
    copy(stream, to, from, static_cast<std::size_t>(ranks_) * bytes);
  }
  void reduce_scatter(const Stream& stream, const CollectiveName&, float* to, const float* from,
                      std::size_t bytes) override {
    look({"sum"}, to, from, bytes);
    copy(stream, to, from, bytes);
  }
  void all_reduce(const Stream&, const CollectiveName&, float* data, std::size_t bytes) override {
    look({"sum"}, data, data, bytes);
  }
  void barrier() override {}
  std::vector<std::string> all_gather_object(const std::string& words) override {
    return std::vector<std::string>(static_cast<std::size_t>(ranks_), words);
  }

  std::size_t asked = 0, announced = 0;
  std::map<std::string, std::set<int>> sides;  // By purpose: how many of both lay there.

 private:
  bool lies(const void* memory, std::size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(memory);
    return std::any_of(places_.begin(), places_.end(), [=](const auto& place) {
      return first >= place.first && first + bytes <= place.second;
    });
  }
  void look(const CollectiveName& name, const void* to, const void* from, std::size_t bytes) {
    sides[name.purpose].insert(lies(to, bytes) + lies(from, bytes));
  }
  static void copy(const Stream& stream, void* to, const void* from, std::size_t bytes) {
    if (to != from) stream.copy(to, from, bytes, CopyKind::device_to_device);
  }
  const int ranks_;
  std::vector<std::pair<const std::byte*, const std::byte*>> places_;
};

// Weights and gradients do, but for what a library adds up; what a few bytes say does not.
TEST(HooksOfTheEngine, ExchangeInMemoryThatIsMeantForIt) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    for (const Sharding strategy : {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                    Sharding::optim_grads_params}) {
      for (const Reduction reduction : {Reduction::ordered, Reduction::nccl}) {
        Scenario s;
        s.name = "test";
        s.numerics = {numerics};
        s.model.pattern = "M*E";
        s.fsdp.strategy = strategy;
        s.fsdp.reduction = reduction;
        s.training.steps = 2;
        const auto data = open_data(s);
        Device device(open_device_under_test());
        const bool summed = reduction == Reduction::nccl, whole = strategy == Sharding::no_shard;
        s.parallel.data = whole ? 2 : 1;  // One rank alone exchanges nothing then.
        PlacedCalls calls(static_cast<int>(s.parallel.data));
        Trainer trainer(device, s, *data, {.communicator = &calls});
        trainer.step();
        trainer.step();
        const std::string where = std::to_string(static_cast<int>(strategy));
        EXPECT_EQ(calls.announced, calls.asked) << where;
        // How many sides of each purpose lie there; empty where none is called.
        const auto of = [&](const char* purpose) { return calls.sides[purpose]; };
        EXPECT_EQ(of("gather"), whole ? std::set<int>{} : std::set{2}) << where;
        EXPECT_EQ(of("norm"), whole ? std::set<int>{} : std::set{0}) << where;
        EXPECT_EQ(of("total"), whole && !summed ? std::set{2} : std::set<int>{}) << where;
        EXPECT_EQ(calls.sides.at(summed ? "sum" : "reduce"), std::set{summed ? 0 : 2}) << where;
      }
    }
  }
}

std::string calls_of(const Scenario& s) {
  const auto data = open_data(s);
  Device device(open_device_under_test());
  ListedCalls calls(device);
  Trainer trainer(device, s, *data, {.communicator = &calls});
  while (trainer.steps_done() < s.training.steps) {
    trainer.step();
    calls.said += "| ";
    if (trainer.evaluation_is_due()) trainer.evaluate();
  }
  EXPECT_EQ(trainer.counters().at(Counter::recaptures), std::ssize(s.training.recapture_at));
  return calls.said;
}

// Layers of two parts, units of two blocks, layers that a graph holds in part: warm-up, replays and
// a second capture.
TEST(HooksOfTheEngine, RunAroundReplaysInTheOrderOfEagerPasses) {
  using enum GraphModule;
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const std::int64_t unit : {1, 2}) {
      Scenario s;
      s.name = "test";
      s.model.pattern = "M*-*EM";
      s.fsdp.strategy = strategy;
      s.fsdp.unit = {unit};
      s.training.steps = 5;
      s.training.eval_every = 2;
      Scenario eager = s;
      eager.cuda_graph.impl = GraphImpl::none;
      const std::string want = calls_of(eager);
      EXPECT_NE(want.find("reduce"), std::string::npos);
      s.training.recapture_at = {3};
      for (const std::vector<GraphModule>& modules : std::vector<std::vector<GraphModule>>{
               {}, {attn}, {mamba, moe_router}, {attn, mlp, moe_router, moe_preprocess}}) {
        s.cuda_graph.modules = modules;
        EXPECT_EQ(calls_of(s), want)
            << static_cast<int>(strategy) << ", unit " << unit << ", modules " << modules.size();
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
