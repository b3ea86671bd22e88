#include "engine/train/step_results.h"

#include <vector>

#include "kernels/core/fault.h"
#include "scenarios/pass_order.h"

namespace lockstep {

namespace {

std::vector<std::size_t> stages_of_routers(const Scenario& scenario) {
  const std::vector<std::int64_t> stages = stages_of_layers(scenario);
  std::vector<std::size_t> list;
  for (std::size_t layer = 0; layer < stages.size(); ++layer) {
    if (scenario.model.pattern[layer] == 'E') list.push_back(stages[layer]);
  }
  return list;
}

}  // namespace

StepResults::StepResults(Device& device, TensorPool& pool, const StepLoop& loop,
                         const Scenario& scenario, Communicator* communicator)
    : device_(device),
      loop_(loop),
      communicator_(communicator),
      data_(scenario.parallel.data),
      stages_(scenario.parallel.pipeline),
      router_stages_(stages_of_routers(scenario)),
      losses_(room_for_all(pool, loop.losses().size())),
      router_losses_(room_for_all(pool, loop.router_losses().size())),
      fetched_(device, static_cast<std::size_t>(
                           2 + ranks() * (loop.losses().size() + loop.router_losses().size())) *
                           sizeof(float)) {}

Tensor<float> StepResults::room_for_all(TensorPool& pool, std::int64_t count) const {
  return communicator_ == nullptr || count == 0 ? Tensor<float>{}
                                                : pool.make<float>(1, ranks() * count);
}

// Gathers the losses rank by rank.
void StepResults::exchange(std::size_t microbatches) const {
  if (communicator_ == nullptr) return;
  const auto gather = [&](const char* what, Tensor<float> own, Tensor<float> all,
                          std::size_t count) {
    if (count > 0)
      communicator_->all_gather(loop_.compute(), {what}, all.data, own.data, count * sizeof(float));
  };
  gather("losses", loop_.losses(), losses_, microbatches);
  gather("router_losses", loop_.router_losses(), router_losses_, 2 * router_pairs(microbatches));
}

// All copies go to pinned memory: a copy to other memory would be a wait of its own.
void StepResults::fetch(Tensor<float> norm, std::size_t microbatches, StepResult& result) const {
  device_.place.part = "results";
  const std::size_t ranks = this->ranks();
  const std::size_t pairs = router_pairs(microbatches);
  const float* const losses = (communicator_ == nullptr ? loop_.losses() : losses_).data;
  const float* const router_losses =
      (communicator_ == nullptr ? loop_.router_losses() : router_losses_).data;
  const std::size_t most = 2 + ranks * (microbatches + 2 * pairs);
  std::vector<float> pageable(faulty("results-in-pageable-memory", std::size_t{0}, most));
  float* const to = pageable.empty() ? static_cast<float*>(fetched_.data()) : pageable.data();
  std::size_t end = 0;
  const auto copy = [&](const float* from, std::size_t count) {
    if (count > 0)
      loop_.compute().copy(to + end, from, count * sizeof(float), CopyKind::device_to_host);
    end += count;
  };
  copy(norm.data, norm.size());
  copy(losses, ranks * microbatches);
  copy(router_losses, ranks * 2 * pairs);
  loop_.compute().synchronize();
  device_.host_reads(to, end * sizeof(float));
  result.norm = norm ? to[0] : 0;
  result.clip = norm ? to[1] : 1;
  const float* const of_losses = to + norm.size();
  add_up(microbatches, of_losses, pairs > 0 ? of_losses + ranks * microbatches : nullptr, result);
}

// Microbatch m of rank r of R has number m * R + r; sums go in that order. The last stage has the
// losses, and each layer's stage its router losses.
void StepResults::add_up(std::size_t microbatches, const float* losses, const float* router_losses,
                         StepResult& result) const {
  const std::size_t routers = router_stages_.size(), ranks = data_;
  const std::size_t own = device_.place.rank % ranks;
  const auto place = [&](std::size_t stage, std::size_t r, std::size_t m) {
    return (stage * ranks + r) * microbatches + m;
  };
  result.loss = 0;
  result.microbatch_router_losses.assign(microbatches, std::vector<RouterLosses>(routers));
  for (std::size_t number = 0; number < microbatches * ranks; ++number) {
    const std::size_t m = number / ranks, r = number % ranks, at = place(stages_ - 1, r, m);
    result.loss = add(result.loss, losses[at]);
    if (r == own) result.microbatch_losses.push_back(losses[at]);
    for (std::size_t x = 0; router_losses != nullptr && x < routers; ++x) {
      const float* const pair = router_losses + 2 * (place(router_stages_[x], r, m) * routers + x);
      const RouterLosses one{pair[0], pair[1]};
      if (r == own) result.microbatch_router_losses[m][x] = one;
      RouterLosses& sum = result.router_losses;
      sum = {add(sum.balance, one.balance), add(sum.z, one.z)};
    }
  }
}

}  // namespace lockstep
