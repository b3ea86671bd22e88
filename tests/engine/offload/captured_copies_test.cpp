// Copies as nodes of partial graphs, against the same run without offloading.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "engine/offload/plan.h"
#include "kernels/core/fault.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/words.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

using enum OffloadModule;

Scenario base() {
  Scenario s;
  s.name = "captured";
  s.model.pattern = "M*-*-";
  s.model.dropout = {100'000};
  s.training.steps = 6;
  s.training.microbatches = 4;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}, {9, 9}},
                      {{64}, {3, 4, 20, 15, 9}, {0, 31}, {2, 60}}};
  return s;
}

Scenario captured(Scenario s) {
  s.offload.modules = {qkv_linear, core_attn,     attn_proj, mlp_norm,
                       mlp_fc1,    mamba_in_proj, mamba_scan};
  s.offload.captured = true;
  return s;
}

TEST(CapturedCopies, NoBitDependsOnThem) {
  const std::vector<std::function<void(Scenario&)>> variants{
      [](Scenario&) {},
      [](Scenario& s) { s.training.in_flight = 3; },
      [](Scenario& s) { s.training.in_flight = 1; },
      [](Scenario& s) {
        s.training.recapture_at = {2, 4};
      },
      [](Scenario& s) { s.cuda_graph.max_packed_seqs = {3}; },  // Some microbatches fall back.
      [](Scenario& s) {
        s.cuda_graph.max_packed_seqs = {2, 4};
        s.cuda_graph.graph_memory_limit = 1;
      },
      [](Scenario& s) { s.cuda_graph.evaluation = GraphEvaluation::replay; },
      [](Scenario& s) { s.model.recompute = {Recompute::mlp_act}; },
      [](Scenario& s) {
        s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
      },
      [](Scenario& s) { s.numerics = {Numerics::bf16}; },
  };
  const std::vector<std::function<void(Scenario&)>> limits{
      [](Scenario&) {}, [](Scenario& s) { s.offload.max_inflight = 0; },
      [](Scenario& s) { s.offload.max_inflight = 2; },
      [](Scenario& s) { s.offload.fraction = Ratio{500'000}; }};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Scenario plain = base();
    variants[i](plain);
    const auto data = open_data(plain);
    const Outcome want = run(plain, *data);
    for (std::size_t j = 0; j < limits.size(); ++j) {
      Scenario s = captured(plain);
      limits[j](s);
      if (!s.cuda_graph.modules.empty()) std::erase(s.offload.modules, mlp_norm);  // L26
      ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
      const Outcome got = run(s, *data);
      EXPECT_EQ(difference(want, got), "") << "variant " << i << ", limit " << j;
      EXPECT_GT(got.counters.at(Counter::copies_in_graphs), 0) << i;
      EXPECT_EQ(got.counters.at(Counter::bytes_planned), got.counters.at(Counter::bytes_offloaded));
      EXPECT_EQ(got.counters.at(Counter::bytes_planned), got.counters.at(Counter::bytes_reloaded));
      EXPECT_LE(got.counters.at(Counter::offloads_in_flight), s.offload.max_inflight.value_or(16));
    }
  }
}

void settle(Scenario& s, std::int64_t stages, std::int64_t chunks, PipelineSchedule schedule) {
  s.parallel.pipeline = stages;
  s.parallel.chunks = chunks;
  s.parallel.group = std::max<std::int64_t>(2, stages);
  s.parallel.schedule = schedule;
  s.training.in_flight = scheduled_depth(s);
}

// Each chunk has copies in its own graphs, in every order of passes.
TEST(CapturedCopies, NoBitDependsOnThoseOfSeveralChunks) {
  Scenario plain = base();
  plain.training.recapture_at = {3};
  const auto data = open_data(plain);
  const Outcome want = run(plain, *data);
  const std::vector<std::function<void(Scenario&)>> limits{
      [](Scenario&) {}, [](Scenario& s) { s.offload.max_inflight = 1; },
      [](Scenario& s) { s.offload.fraction = Ratio{500'000}; },
      [](Scenario& s) {
        s.cuda_graph.modules = {GraphModule::mlp};  // One chunk has no graph.
        std::erase(s.offload.modules, mlp_norm);    // L26
      }};
  for (const PipelineSchedule schedule : {PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    for (const int chunks : {2, 3}) {
      for (const auto& limit : limits) {
        Scenario s = captured(plain);
        settle(s, 1, chunks, schedule);
        limit(s);
        ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
        ASSERT_TRUE(check_built(s).empty());
        const Outcome got = run(s, *data);
        EXPECT_EQ(difference(want, got), "") << chunks << " chunks, " << word(schedule);
        EXPECT_GT(got.counters.at(Counter::copies_in_graphs), 0);
        EXPECT_EQ(got.counters.at(Counter::bytes_planned),
                  got.counters.at(Counter::bytes_offloaded));
        EXPECT_EQ(got.counters.at(Counter::bytes_planned),
                  got.counters.at(Counter::bytes_reloaded));
      }
    }
  }
}

// Positions, bins and bytes are those of eager copies.
TEST(CapturedCopies, LeaveThePlanAsItIs) {
  for (const std::int64_t in_flight : {1, 2, 4}) {
    Scenario s = captured(base());
    s.training.in_flight = in_flight;
    const OffloadPlan nodes = plan_offload(s);
    s.offload.captured = false;
    const OffloadPlan eager = plan_offload(s);
    EXPECT_EQ(nodes.buffers, eager.buffers);
    ASSERT_EQ(nodes.groups.size(), eager.groups.size());
    for (std::size_t i = 0; i < eager.groups.size(); ++i) {
      EXPECT_EQ(nodes.groups[i].d2h.begin, eager.groups[i].d2h.begin);
      EXPECT_EQ(nodes.groups[i].h2d.begin, eager.groups[i].h2d.begin);
      EXPECT_TRUE(nodes.groups[i].leaves_in_graph) << i;
      EXPECT_FALSE(eager.groups[i].leaves_in_graph || eager.groups[i].returns_in_graph);
      EXPECT_EQ(nodes.groups[i].returns_in_graph,
                nodes.groups[i].h2d.begin > nodes.segments + 1);  // Behind the head.
    }
  }
}

// What is delayed, or leaves an eager segment, is copied eagerly.
TEST(CapturedCopies, AreThoseOfCapturedLayersAlone) {
  Scenario s = base();
  s.model.pattern = "*EM";
  s.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router};
  s.offload.modules = {core_attn, expert_fc1, mamba_scan};
  s.offload.delay_until_cuda_graph = s.offload.captured = true;
  ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
  for (const OffloadGroup& group : plan_offload(s).groups)
    EXPECT_EQ(group.leaves_in_graph, group.module == core_attn) << group.layer;
}

// The streams and events of copies are usable again after a capture that held some.
TEST(CapturedCopies, SurviveACaptureThatFails) {
  Scenario plain = base();
  plain.training.eval_every = 0;
  const auto data = open_data(plain);
  const Outcome want = run(plain, *data);
  for (const std::int64_t failing : {1, 3}) {
    Scenario s = captured(plain);
    s.training.recapture_at = {3};
    Device device(open_device_under_test());
    Trainer trainer(device, s, *data);
    while (trainer.steps_done() < failing) trainer.step();
    plant_fault("allocation-during-capture");
    EXPECT_THROW(trainer.step(), EngineViolation);
    plant_fault("");
    EXPECT_EQ(trainer.steps_done(), failing);
    while (trainer.steps_done() < s.training.steps) trainer.step();
    EXPECT_EQ(trainer.weight_digest(), want.digest) << failing;
    EXPECT_GT(trainer.counters().at(Counter::copies_in_graphs), 0) << failing;
  }
}

// The host's calls of one run: launches, and copies outside of graphs, by stream.
struct Calls : Observer {
  void on_call(const IssuedCall& issued) override {
    if (const auto* created = issued.as<CreateStreamCall>()) names[issued.stream] = created->name;
    if (issued.as<BeginCaptureCall>()) capturing = true;
    if (issued.as<EndCaptureCall>()) capturing = false;
    const std::string& name = names[issued.stream];
    if (issued.as<CopyCall>() && !capturing && (name == "d2h" || name == "h2d"))
      ++(issued.place.step == 0 ? eager_at_first : eager_later);
    const auto* launch = issued.as<LaunchCall>();
    if (!launch) return;
    launched_on.insert(issued.stream);
    for (const IssuedCall& entry : launch->captured->entries()) {
      const bool moves = names[entry.stream] == "d2h" || names[entry.stream] == "h2d";
      in_graphs += entry.as<CopyCall>() && moves;
      beside_compute += entry.as<CopyCall>() && moves && name == "compute";
    }
  }
  std::map<int, std::string> names;
  bool capturing = false;
  std::int64_t eager_at_first = 0, eager_later = 0, in_graphs = 0, beside_compute = 0;
  std::set<int> launched_on;
};

TEST(CapturedCopies, AreLaunchedWithTheirGraphs) {
  Scenario s = captured(base());
  s.training.eval_every = 0;
  s.cuda_graph.max_packed_seqs = {8};
  Calls calls;
  const auto data = open_data(s);
  const Outcome got = run(s, *data, {}, &calls);
  EXPECT_EQ(calls.in_graphs, got.counters.at(Counter::copies_in_graphs));
  EXPECT_EQ(calls.beside_compute, 0) << "the tail of a copy would hold up compute";
  const OffloadPlan plan = plan_offload(s);
  std::int64_t out = 0, back = 0;
  for (const OffloadGroup& group : plan.groups) {
    out += group.leaves_in_graph ? std::ssize(group.tensors) : 0;
    back += group.returns_in_graph ? std::ssize(group.tensors) : 0;
  }
  EXPECT_GT(back, 0);
  // Four microbatches a step; the first step is the warm-up.
  EXPECT_EQ(calls.in_graphs, 5 * 4 * (out + back));
  EXPECT_EQ(calls.eager_at_first, 4 * 2 * out);
  EXPECT_EQ(calls.eager_later, 5 * 4 * (out - back)) << "copies back that begin with the head's";
}

}  // namespace
}  // namespace lockstep::test
