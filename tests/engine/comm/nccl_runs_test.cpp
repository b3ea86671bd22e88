// Whole runs of stages and of experts over a library that moves nothing: their ranks make the calls
// that they need, and order what they receive.
#include <gtest/gtest.h>

#include "engine/train/trainer.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "tests/engine/comm/fake_library.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

// A whole run of stages: as many communicators as there are ways that copies do not serve. Eager
// steps copy where the graph of a step sends over the library.
TEST(Nccl, HasStagesWithoutTheLibraryWhereCopiesServe) {
  for (const bool captured : {false, true}) {
    for (const bool meets : {false, true}) {
      Scenario s;
      s.numerics = {Numerics::fp32};
      s.model.pattern = "M*-M";
      s.model.tied_embedding = true;
      s.training.steps = 3;
      s.training.microbatches = 3;
      if (captured) s.cuda_graph.impl = GraphImpl::full_iteration;
      if (captured) s.cuda_graph.modules.clear();
      s.parallel.pipeline = 2;
      s.parallel.transport = Transport::nccl;
      s.training.in_flight = scheduled_depth(s);
      ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
      const auto data = open_data(s);
      const TemporaryFolder folder;
      const auto body = [&](Communicator& c, auto& gather, auto&...) {
        FakeRanks::introduced = meets;
        const int before = WithLibrary::joined;
        Trainer trainer(gather.device(), s, *data, {.communicator = &c});
        // For activations, two kinds of gradients, and the weight, which no graph sends.
        const int joined = WithLibrary::joined - before, expected = !meets ? 4 : captured ? 3 : 0;
        if (joined != expected) throw std::runtime_error(std::to_string(joined) + " communicators");
        FakeRanks::said = "";
        while (trainer.steps_done() < s.training.steps) trainer.step();
        const auto says = [](char call) { return FakeRanks::said.find(call) != std::string::npos; };
        if (says('o') != meets) throw std::runtime_error(FakeRanks::said);
        if (says('l') != captured) throw std::runtime_error("no graph holds transfers");
        const bool counted = trainer.counters().at(Counter::collectives_in_graphs) > 0;
        if (counted != captured) throw std::runtime_error("transfers are in no graph");
      };
      for (const Ended& one : ended_of(Library::works, 20, folder, body))
        EXPECT_EQ(one.status, 0) << one.words << captured << meets;
    }
  }
}

// A stage knows of the others' work what comes through its calls. Here the library moves nothing,
// and the checker sees one process: each stage orders what it receives behind its own readers.
TEST(Nccl, HasStagesThatOrderWhatTheyReceiveThemselves) {
  for (const bool tied : {true, false}) {
    Scenario s;
    s.numerics = {Numerics::fp32};
    s.model.pattern = "M*-M-*";
    s.model.tied_embedding = tied;
    s.training.steps = 3;
    s.training.microbatches = 6;
    s.training.eval_every = 1;
    s.cuda_graph.modules = {GraphModule::attn};
    s.parallel.pipeline = 2;
    s.parallel.transport = Transport::nccl;
    if (!tied) s.parallel.chunks = 2, s.parallel.group = 2;
    s.parallel.schedule =
        tied ? PipelineSchedule::one_forward_one_backward : PipelineSchedule::interleaved;
    s.training.in_flight = scheduled_depth(s);
    ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
    const auto data = open_data(s);
    const TemporaryFolder folder;
    const auto ended =
        ended_of(Library::works, 20, folder, [&](Communicator& c, auto& gather, auto&...) {
          Trainer trainer(gather.device(), s, *data, {.communicator = &c});
          for (std::int64_t step = 0; step < s.training.steps; ++step) {
            trainer.step();
            if (trainer.evaluation_is_due()) trainer.evaluate();
          }
        });
    for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
  }
}

// Ranks that share experts, all of a stage or half of it, do the same. What compute reads of the
// others' rows it orders behind the exchange, and what it sends before. They send no rows. Where
// the host reads no sizes the exchange is in the graphs of experts, or in that of the step.
TEST(Nccl, HasExpertsThatOrderWhatTheyReceiveThemselves) {
  for (const int replicas : {1, 2}) {
    for (const bool reads_sizes : {true, false}) {
      Scenario s;
      s.numerics = {Numerics::fp32};
      s.model.pattern = "E*E";
      s.model.moe.experts = 4;
      s.model.moe.top_k = 2;
      s.model.moe.host_sync = reads_sizes;
      if (reads_sizes) {
        s.model.moe.capacity_factor.reset();
        s.model.moe.pad_to_capacity = false;
      }
      s.training.steps = 3;
      s.training.microbatches = 3;
      s.training.eval_every = 2;
      s.cuda_graph.modules = {GraphModule::attn};
      if (!reads_sizes) s.cuda_graph.modules.push_back(GraphModule::moe);
      if (!reads_sizes && replicas == 2) s.cuda_graph.impl = GraphImpl::full_iteration;
      if (s.cuda_graph.impl == GraphImpl::full_iteration) s.cuda_graph.modules.clear();
      s.fsdp.strategy = replicas == 1 ? Sharding::no_shard : Sharding::optim_grads_params;
      s.parallel.data = 2 * replicas;
      s.parallel.expert = 2;
      s.parallel.transport = Transport::nccl;
      ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
      ASSERT_TRUE(check_built(s).empty()) << check_built(s).front().text();
      const auto data = open_data(s);
      const TemporaryFolder folder;
      const auto body = [&](Communicator& c, auto& gather, auto&...) {
        FakeRanks::said = "";
        Trainer trainer(gather.device(), s, *data, {.communicator = &c});
        const std::string connections = replicas == 1 ? "gx" : "gxgx";
        if (!FakeRanks::said.starts_with(connections)) throw std::runtime_error(FakeRanks::said);
        while (trainer.steps_done() < s.training.steps) {
          trainer.step();
          if (trainer.evaluation_is_due()) trainer.evaluate();
        }
        const bool captures = trainer.counters().at(Counter::collectives_in_graphs) > 0;
        if (captures == reads_sizes) throw std::runtime_error("exchanges are in no graph");
      };
      for (const Ended& one : ended_of(Library::brings_zeros, 20, folder, body, 2 * replicas))
        EXPECT_EQ(one.status, 0) << one.words << replicas << reads_sizes;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
