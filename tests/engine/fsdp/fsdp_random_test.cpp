// Sharded runs with all the machinery that may be on, drawn at random: the bits of one rank that
// does nothing of it, and no hazard on the way.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "harness/checker/checker.h"
#include "tests/engine/fsdp/sharded_run.h"
#include "tests/support/program.h"

namespace lockstep::test {
namespace {

// The model that is trained: the same for the sharded run and its reference.
Scenario any_model() {
  Scenario s;
  s.name = "test";
  s.numerics = {*rc::gen::element(Numerics::fp32, Numerics::bf16)};
  s.model.pattern =
      *rc::gen::element<std::string>("M", "M*-", "*-*-*-", "M*-M*-M", "M-E", "*E*E", "MM-*E-M");
  s.model.tied_embedding = *rc::gen::arbitrary<bool>();
  s.model.dropout = {*rc::gen::element(0, 100'000)};
  s.model.moe.expert_bias = *rc::gen::arbitrary<bool>();
  s.model.moe.router = s.model.moe.expert_bias ? Router::sigmoid : Router::softmax;
  s.model.moe.aux_loss = {*rc::gen::element(0, 10'000)};
  s.model.moe.shared_hidden = *rc::gen::element(0, 16);
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {64}}, {{64}, {3, 4, 20, 15, 9}}};
  s.training.steps = 4;
  s.training.eval_every = *rc::gen::inRange(0, 3);
  return s;
}

void shard(Scenario& s, Sharding strategy) {
  s.fsdp.strategy = strategy;
  s.fsdp.unit = {*rc::gen::inRange(1, 4)};
  s.fsdp.prefetch = *rc::gen::inRange(0, 3);
  s.fsdp.bucket_bytes = *rc::gen::element(0, 2000);
}

void add_machinery(Scenario& s, bool sharded) {
  s.training.in_flight = *rc::gen::inRange<std::int64_t>(1, s.training.microbatches + 1);
  s.cuda_graph.impl =
      *rc::gen::element(GraphImpl::none, GraphImpl::partial, GraphImpl::partial,
                        s.parallel.data == 1 ? GraphImpl::full_iteration : GraphImpl::partial);
  using Buckets = std::vector<std::int64_t>;
  s.cuda_graph.max_packed_seqs = *rc::gen::elementOf(std::vector<Buckets>{{8}, {4, 8}, {4}});
  if (s.cuda_graph.impl != GraphImpl::none && *rc::gen::arbitrary<bool>())
    s.training.recapture_at = {2};
  if (s.cuda_graph.impl == GraphImpl::partial) {
    using Modules = std::vector<GraphModule>;
    s.cuda_graph.modules = *rc::gen::elementOf(
        std::vector<Modules>{{},
                             {GraphModule::attn},
                             {GraphModule::mamba},
                             {GraphModule::attn, GraphModule::moe_router},
                             {GraphModule::attn, GraphModule::mlp, GraphModule::mamba}});
  }
  const bool baked = s.cuda_graph.impl == GraphImpl::partial && sharded;
  s.fsdp.double_buffer = baked || *rc::gen::arbitrary<bool>();
  s.fsdp.persist_buf_on_alloc_fail = baked || *rc::gen::arbitrary<bool>();
  if (s.fsdp.double_buffer && !s.fsdp.persist_buf_on_alloc_fail && s.fsdp.prefetch == 2)
    s.fsdp.prefetch = 1;
  if (s.model.pattern.find('M') != std::string::npos && *rc::gen::arbitrary<bool>()) {
    s.offload.modules = {OffloadModule::mamba_scan};
    if (s.cuda_graph.impl == GraphImpl::full_iteration) s.offload.max_inflight = 1;
  }
}

std::string text(const Scenario& s) {
  std::string t = s.model.pattern + (s.numerics[0] == Numerics::bf16 ? " bf16" : " fp32");
  const auto say = [&](const char* what, std::int64_t value) {
    t += std::string(" ") + what + " " + std::to_string(value);
  };
  say("ranks", s.parallel.data);
  say("microbatches", s.training.microbatches);
  say("in flight", s.training.in_flight);
  say("strategy", static_cast<int>(s.fsdp.strategy));
  say("unit", s.fsdp.unit[0]);
  say("prefetch", s.fsdp.prefetch);
  say("bucket", s.fsdp.bucket_bytes);
  say("double", s.fsdp.double_buffer);
  say("persist", s.fsdp.persist_buf_on_alloc_fail);
  say("impl", static_cast<int>(s.cuda_graph.impl));
  say("modules", std::ssize(s.cuda_graph.modules));
  say("tied", s.model.tied_embedding);
  say("eval", s.training.eval_every);
  say("recapture", std::ssize(s.training.recapture_at));
  say("offload", std::ssize(s.offload.modules));
  return t;
}

Outcome run_checked(const Scenario& s, const DataSource& data) {
  using Policy = SimOptions::Policy;
  Checker checker;
  const SimOptions sim{.policy = *rc::gen::element(Policy::lazy, Policy::random, Policy::pct),
                       .seed = *rc::gen::inRange<std::uint64_t>(1, 1000)};
  const Outcome outcome = run_whole(s, data, sim, &checker);
  checker.throw_found();
  return outcome;
}

TEST(FsdpRandom, ShardedGradientsHaveTheBitsOfOneRankThatDoesNothingOfIt) {
  ASSERT_TRUE(rc::check([] {
    Scenario s = any_model();
    const int ranks = *rc::gen::inRange(1, 5);
    s.training.microbatches = *rc::gen::inRange(1, 4);
    Scenario plain = s;
    plain.training.microbatches *= ranks;
    plain.training.in_flight = 1;
    plain.cuda_graph.impl = GraphImpl::none;
    s.parallel.data = ranks;
    shard(s, *rc::gen::element(Sharding::optim_grads, Sharding::optim_grads_params));
    add_machinery(s, true);
    const auto data = open_data(s);
    RC_LOG() << text(s);
    const Outcome want = run(plain, *data);
    const std::string found = difference(run_checked(s, *data), want);
    if (!found.empty()) RC_FAIL(found);
  }));
}

TEST(FsdpRandom, FoldsOfRanksHaveTheBitsOfTheSameRanksThatDoNothingOfIt) {
  ASSERT_TRUE(rc::check([] {
    Scenario s = any_model();
    s.parallel.data = *rc::gen::inRange(1, 5);
    s.training.microbatches = *rc::gen::inRange(1, 4);
    Scenario plain = s;
    plain.training.in_flight = 1;
    plain.cuda_graph.impl = GraphImpl::none;
    shard(s, *rc::gen::element(Sharding::no_shard, Sharding::optim));
    add_machinery(s, s.fsdp.strategy != Sharding::no_shard);
    const auto data = open_data(s);
    RC_LOG() << text(s);
    const Outcome want = run_whole(plain, *data);
    const std::string found = difference(run_checked(s, *data), want);
    if (!found.empty()) RC_FAIL(found);
  }));
}

// Saved to `path` after some steps and microbatches of the next one.
void run_and_save(const Scenario& s, const DataSource& data, std::int64_t steps,
                  std::int64_t microbatches, const std::string& path) {
  Checker checker;
  {
    Device device(open_device_under_test(), &checker);
    run_ranks(device, static_cast<int>(s.parallel.data), 1, [&](Communicator& communicator) {
      Trainer trainer(device, s, data, {.communicator = &communicator});
      Outcome before;
      run_until(trainer, steps, before);
      if (microbatches > 0) trainer.accumulate(microbatches);
      trainer.save(path);
    });
  }
  checker.throw_found();
}

TEST(FsdpRandom, ARunThatIsInterruptedAnywhereContinuesAsIfItWereNot) {
  ASSERT_TRUE(rc::check([] {
    Scenario s = any_model();
    s.parallel.data = *rc::gen::inRange(1, 4);
    s.training.microbatches = *rc::gen::inRange(1, 4);
    shard(s, *rc::gen::element(Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                               Sharding::optim_grads_params));
    add_machinery(s, s.fsdp.strategy != Sharding::no_shard);
    const auto data = open_data(s);
    const auto stop = *rc::gen::inRange<std::int64_t>(0, s.training.steps);
    const auto within = *rc::gen::inRange<std::int64_t>(0, s.training.microbatches);
    RC_LOG() << text(s) << " stopped in " << stop << " after " << within;
    Outcome want = run_whole(s, *data);
    want.steps.erase(want.steps.begin(), want.steps.begin() + stop);
    want.gradients.erase(want.gradients.begin(), want.gradients.begin() + stop);
    const std::int64_t evaluated = s.training.eval_every > 0 ? stop / s.training.eval_every : 0;
    want.evaluations.erase(want.evaluations.begin(), want.evaluations.begin() + evaluated);
    const TemporaryFolder folder;
    run_and_save(s, *data, stop, within, folder / "state");
    Checker checker;
    Outcome rest = run_whole(s, *data, {}, &checker, folder / "state");
    checker.throw_found();
    rest.gradients.erase(rest.gradients.begin(), rest.gradients.begin() + stop);
    const std::string found = difference(rest, want);
    if (!found.empty()) RC_FAIL(found);
  }));
}

}  // namespace
}  // namespace lockstep::test
