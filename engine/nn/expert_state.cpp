#include "engine/nn/expert_state.h"

#include "kernels/core/fault.h"
#include "kernels/moe/expert_state.h"

namespace lockstep {
namespace {

// No scenario key sets this rate. It is the default of Megatron-LM's --moe-router-bias-update-rate
// (docs/decisions.md).
constexpr float kBiasRate = 0.001f;

template <class T>
void zero(const Stream& stream, const Tensor<T>& x) {
  stream.fill(x.data, 0, static_cast<std::size_t>(x.size()) * sizeof(T));
}

}  // namespace

std::vector<ExpertState> make_expert_states(TensorPool& pool, const Scenario::Model& model,
                                            const std::vector<Chunk>& chunks, int ranks) {
  std::vector<ExpertState> states;
  int number = 0;
  const std::int64_t experts = model.moe.experts;
  for (std::size_t layer = 0; layer < model.pattern.size(); ++layer) {
    if (model.pattern[layer] != 'E') continue;
    const int own = number++;
    if (!has_layer(chunks, static_cast<int>(layer))) continue;
    states.push_back(
        {.layer = static_cast<int>(layer),
         .number = own,
         .bias = model.moe.expert_bias ? pool.make<float>(1, experts) : Tensor<float>{},
         .step = pool.make<std::int32_t>(1, experts),
         .total = pool.make<std::int64_t>(1, experts),
         .kept = pool.make<std::int64_t>(1, experts),
         .all_steps = {}});
    if (model.moe.expert_bias && ranks > 0)
      states.back().all_steps = pool.make<std::int32_t>(ranks, experts);
  }
  return states;
}

void clear(const Stream& stream, const std::vector<ExpertState>& states) {
  for (const ExpertState& state : states) {
    if (state.bias) zero(stream, state.bias);
    zero(stream, state.step);
    zero(stream, state.total);
    zero(stream, state.kept);
  }
}

std::vector<MemoryRange> counts_of(const std::vector<ExpertState>& states) {
  std::vector<MemoryRange> ranges;
  for (const ExpertState& state : states) {
    ranges.insert(ranges.end(),
                  {range_of(state.step), range_of(state.total), range_of(state.kept)});
  }
  return ranges;
}

void update_biases(const Stream& stream, const std::vector<ExpertState>& states,
                   Communicator* communicator) {
  for (const ExpertState& state : states) {
    stream.device().place.layer = state.layer;
    if (!state.bias) continue;
    if (communicator != nullptr) {
      const auto bytes = static_cast<std::size_t>(state.step.size()) * sizeof(std::int32_t);
      communicator->all_gather(stream, {"counts"}, state.all_steps.data, state.step.data, bytes);
      zero(stream, state.step);
    }
    Tensor<std::int32_t> step = communicator == nullptr ? state.step : state.all_steps;
    step.rows = faulty("expert-bias-counts-one-rank", step.rows, 1);
    stream.submit(UpdateExpertBias{.step = step,
                                   .bias = state.bias,
                                   .rate = faulty("expert-bias-never-updated", kBiasRate, 0)});
  }
  stream.device().place.layer = -1;
}

}  // namespace lockstep
