// Sharded runs with all the machinery that may be on, drawn at random: the bits of one rank that does nothing of it,
// and no hazard on the way.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "harness/checker/checker.h"
#include "tests/engine/sharded_run.h"

namespace lockstep::test {
namespace {

// What is trained: the same for the sharded run and its reference.
Scenario any_model() {
  Scenario s;
  s.name = "test";
  s.numerics = {*rc::gen::element(Numerics::fp32, Numerics::bf16)};
  s.model.pattern = *rc::gen::element<std::string>("M", "M*-", "*-*-*-", "M*-M*-M", "M-E", "*E*E", "MM-*E-M");
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
  s.cuda_graph.impl = *rc::gen::element(GraphImpl::none, GraphImpl::partial, GraphImpl::partial,
                                        s.parallel.data == 1 ? GraphImpl::full_iteration : GraphImpl::partial);
  using Buckets = std::vector<std::int64_t>;
  s.cuda_graph.max_packed_seqs = *rc::gen::elementOf(std::vector<Buckets>{{8}, {4, 8}, {4}});
  if (s.cuda_graph.impl != GraphImpl::none && *rc::gen::arbitrary<bool>()) s.training.recapture_at = {2};
  if (s.cuda_graph.impl == GraphImpl::partial) {
    using Modules = std::vector<GraphModule>;
    s.cuda_graph.modules =
        *rc::gen::elementOf(std::vector<Modules>{{},
                                                 {GraphModule::attn},
                                                 {GraphModule::mamba},
                                                 {GraphModule::attn, GraphModule::moe_router},
                                                 {GraphModule::attn, GraphModule::mlp, GraphModule::mamba}});
  }
  const bool baked = s.cuda_graph.impl == GraphImpl::partial && sharded;
  s.fsdp.double_buffer = baked || *rc::gen::arbitrary<bool>();
  s.fsdp.persist_buf_on_alloc_fail = baked || *rc::gen::arbitrary<bool>();
  if (s.fsdp.double_buffer && !s.fsdp.persist_buf_on_alloc_fail && s.fsdp.prefetch == 2) s.fsdp.prefetch = 1;
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

}  // namespace
}  // namespace lockstep::test
