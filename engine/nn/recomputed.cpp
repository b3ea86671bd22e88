#include "engine/nn/recomputed.h"

#include <algorithm>

#include "engine/nn/moe.h"

namespace lockstep {

template <class T>
Recomputed<T>::Recomputed(TensorPool& pool, const Scenario& scenario) {
  const Scenario::Model& model = scenario.model;
  const std::int64_t rows = scenario.data.pack_length;
  const auto asked = [&](Recompute module) {
    return std::find(model.recompute.begin(), model.recompute.end(), module) !=
           model.recompute.end();
  };
  if (asked(Recompute::layernorm)) norm = pool.make<T>(rows, model.hidden);
  if (asked(Recompute::mlp_act)) mlp_act = pool.make<T>(rows, model.mlp.hidden);
  if (!asked(Recompute::moe_act)) return;
  moe_act = pool.make<T>(ExpertBuffer(scenario).rows, model.moe.hidden);
  if (model.moe.shared_hidden > 0) shared_act = pool.make<T>(rows, model.moe.shared_hidden);
}

template struct Recomputed<float>;
template struct Recomputed<bf16>;

}  // namespace lockstep
