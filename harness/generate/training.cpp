// Steps, microbatches, ranks and the optimizer.
#include <algorithm>
#include <cstdint>

#include "harness/generate/parts.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostPasses = 60;  // Passes of all ranks, over all steps.

// The ranks that share the work; the sharding follows when the graphs are known.
void draw_ranks(Choices& c, const Swarm& swarm, Scenario& s) {
  if (!swarm.sharding) return;
  const bool processes = swarm.transport != Transport::automatic;
  s.parallel.data =
      processes ? c.pick<std::int64_t>({2, 2, swarm.transport == Transport::nccl ? 2 : 3, 4})
      : swarm.many_ranks ? c.pick<std::int64_t>({5, 6, 8})
                         : c.pick<std::int64_t>({2, 1, 3, 2, 1, 4});
  s.fsdp.strategy = c.pick<Sharding>(
      {Sharding::optim_grads_params, Sharding::optim_grads, Sharding::optim, Sharding::no_shard});
  if (s.parallel.data == 1 && s.fsdp.strategy == Sharding::no_shard)
    s.fsdp.strategy = Sharding::optim_grads_params;
  if (s.parallel.data > 1 && c.one_in(4)) s.parallel.transport = Transport::local;
  if (processes) s.parallel.transport = swarm.transport;
}

// Each pass over a long pack is expensive.
std::int64_t draw_steps(Choices& c, const Swarm& swarm) {
  if (swarm.many_steps) return c.one_in(3) ? c.between(9, 12) : c.between(6, 8);
  if (swarm.few_steps) return c.between(1, 2);
  return swarm.long_packs ? c.between(2, 3) : c.between(3, 5);
}

// Passes of one rank and step, so that the passes of all have room.
std::int64_t room_for_microbatches(const Swarm& swarm, const Scenario& s) {
  if (swarm.rare != RareSize::none) return 2;  // Each pass is expensive.
  const std::int64_t most = swarm.many_microbatches ? 8
                            : swarm.long_packs      ? 2
                                                    : 9 / s.parallel.data;
  const std::int64_t room = kMostPasses / (s.training.steps * s.parallel.data);
  return std::clamp<std::int64_t>(std::min(most, room), 1, swarm.many_microbatches ? 8 : 4);
}

// One change, or two of them where there are steps for it.
void draw_changes(Choices& c, std::int64_t most, Scenario::Training& t) {
  if (t.steps < 2) return;
  t.change_microbatches_at = {{c.between(1, t.steps - 1), c.between(1, most)}};
  const std::int64_t first = t.change_microbatches_at.front().step;
  if (first + 1 < t.steps && c.one_in(3)) {
    t.change_microbatches_at.push_back({c.between(first + 1, t.steps - 1), c.between(1, most)});
  }
}

// Weights stay finite. A step moves a weight by lr x m / (sqrt(v) + eps); where its gradient is
// zero from then on (an expert that nobody asks) the quotient grows by beta1 / sqrt(beta2) a step,
// 40 times in 12 steps of 0.99 and 0.5, and without bound where beta2 alone is 0. lr x weight_decay
// is at most 1, a beta is below 1 in fp32 too, and eps is above what v loses by underflow.
void draw_constants(Choices& c, Scenario::Training::Optimizer& o) {
  o.lr = c.pick<double>({1.0e-3, 0, 1.0e-5, 1.0e-2, 0.1});
  o.weight_decay = c.pick<double>({0.01, 0, 0.3, 1, 10});
  o.beta1 = c.pick<double>({0.9, 0, 0.5, 0.99});
  o.beta2 = c.pick<double>({0.95, 0.5, 0.9999});
  if (o.beta1 == 0 && c.one_in(2)) o.beta2 = 0;
  o.eps = c.pick<double>({1.0e-8, 1.0e-15, 1.0e-3, 1});
  o.clip = c.pick<double>({1.0, 0, 1.0e-6, 0.3, 1.0e6});
}

// A few long steps with ordinary quotients: gates, time steps and terms of a softmax come to where
// their functions end. Scores of a sigmoid router that are all +0 have no weights, so experts are
// chosen by softmax.
void draw_large_values(Choices& c, Scenario& s) {
  Scenario::Training::Optimizer& o = s.training.optimizer;
  if (s.training.steps > 4 || !c.one_in(3)) return;
  if (s.model.pattern.find('E') != std::string::npos && s.model.moe.router == Router::sigmoid)
    return;
  o.lr = 0.5;
  o.beta1 = 0.9;
  o.beta2 = 0.95;
  o.weight_decay = std::min(o.weight_decay, 1.0);
}

void draw_optimizer(Choices& c, const Swarm& swarm, Scenario& s) {
  Scenario::Training& t = s.training;
  Scenario::Training::Optimizer& o = t.optimizer;
  o.decay_steps = t.steps;
  if (swarm.constants) {
    draw_constants(c, o);
    draw_large_values(c, s);
  }
  if (!swarm.schedules) return;
  o.schedule = c.pick<LrSchedule>({LrSchedule::constant, LrSchedule::linear, LrSchedule::cosine});
  o.lr_warmup = c.between(0, t.steps);
  o.decay_steps = c.between(1, 2 * t.steps);
  o.min_lr = c.one_in(2) ? std::min(1.0e-4, o.lr) : 0;
  if (swarm.constants) return;
  o.clip = c.pick<double>({1.0, 0, 0.01, 100});
  o.weight_decay = c.pick<double>({0.01, 0, 1});
}

}  // namespace

std::int64_t draw_seed(Choices& c, const Swarm& swarm) {
  if (!swarm.large_seeds) return c.between(0, 1000);
  return c.one_in(2) ? c.between(0, kMostSeed)
                     : c.pick<std::int64_t>(
                           {kMostSeed, (std::int64_t{1} << 32) - 1, std::int64_t{1} << 32});
}

void draw_training(Choices& c, const Swarm& swarm, Scenario& s) {
  draw_ranks(c, swarm, s);
  Scenario::Training& t = s.training;
  t.steps = draw_steps(c, swarm);
  const std::int64_t most = room_for_microbatches(swarm, s);
  t.microbatches = c.between(swarm.many_microbatches ? std::min<std::int64_t>(5, most) : 1, most);
  if (swarm.change) draw_changes(c, most, t);
  t.in_flight = c.between(1, fewest_microbatches(t));
  t.seed = draw_seed(c, swarm);
  if (swarm.evaluation) t.eval_every = c.between(1, t.steps);
  draw_optimizer(c, swarm, s);
}

}  // namespace lockstep
