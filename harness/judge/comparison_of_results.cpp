// What a step, an evaluation or the optimizer leaves: losses, tokens, weights and biases.
#include <algorithm>

#include "harness/judge/comparison.h"
#include "kernels/core/contract.h"
#include "scenarios/documents/layout.h"

namespace lockstep {

void StepComparison::gradients_done() {
  const std::int64_t order = kPerCall * calls_++;
  gradients_seen_ = true;
  if (!is_earlier(order)) return;
  const std::vector<std::vector<float>> seen =
      read_each([](const ParameterView& view) { return StoredValues(view.gradient); });
  for (std::size_t i = engine_.parameters.size(); i-- > 0;) {
    const ParameterView& view = engine_.parameters[i];
    const FirstDifference where = where_is(-1, view.layer, "accumulate", view.name + ".gradient");
    const std::size_t parameter = view.index;
    if (parameter >= expected_.after.size()) {
      missing(order, JudgeKind::gradient, where, "oracle");
      continue;
    }
    const oracle::Parameter& want = expected_.after[parameter];
    compare_part(order, JudgeKind::gradient, where, view, seen[i], want.gradient, want.cols);
  }
}

void StepComparison::step_done() {
  ++calls_;
  step_seen_ = true;
}

void StepComparison::compare_losses(const StepResult& got, JudgeKind judge) {
  const std::int64_t end = kPerCall * calls_;
  if (std::ssize(got.microbatch_losses) != microbatches()) {
    return note(end, {judge,
                      "the engine ran " + std::to_string(got.microbatch_losses.size()) +
                          " microbatches, the oracle " + std::to_string(microbatches()),
                      where_is(-1, -1, "", "loss")});
  }
  for (int m = 0; m < microbatches(); ++m) {
    const std::int64_t forward = at(forward_order_, m) < 0 ? end : at(forward_order_, m) + 1;
    compare_scalar(forward, judge, m, "loss", at(got.microbatch_losses, m), want(m).loss);
  }
  compare_router_losses(got, judge);
  compare_scalar(end + 1, judge, -1, "loss", got.loss, expected_.want.loss);
}

// Each layer `E` has a pair of losses, known after the forward pass.
void StepComparison::compare_router_losses(const StepResult& got, JudgeKind judge) {
  for (int m = 0; m < microbatches(); ++m) {
    const auto& expected = want(m).experts;
    static const std::vector<RouterLosses> none;
    const auto& all = got.microbatch_router_losses;
    const std::size_t at_m = m;
    const std::vector<RouterLosses>& pairs = at_m < all.size() ? all[at_m] : none;
    const std::int64_t order =
        forward_order_[at_m] < 0 ? kPerCall * calls_ : forward_order_[at_m] + 1;
    if (pairs.size() != expected.size())
      return missing(order, judge, where_is(m, -1, "", "router losses"), "engine");
    for (std::size_t x = 0; x < expected.size(); ++x) {
      const std::string layer = "layers." + std::to_string(expected[x].layer);
      compare_scalar(order, judge, m, layer + ".aux_loss", pairs[x].balance, expected[x].aux_loss);
      compare_scalar(order, judge, m, layer + ".z_loss", pairs[x].z, expected[x].z_loss);
    }
  }
  compare_folded_router_losses(got, judge);
}

// The losses are summed over the microbatches of all ranks by number, and within each over its
// layers.
void StepComparison::compare_folded_router_losses(const StepResult& got, JudgeKind judge) {
  RouterLosses sum;
  for (const oracle::MicrobatchResult& microbatch : expected_.want.microbatches) {
    for (const auto& layer : microbatch.experts)
      sum = {add(sum.balance, layer.aux_loss), add(sum.z, layer.z_loss)};
  }
  const std::int64_t order = kPerCall * calls_ + 1;
  compare_scalar(order, judge, -1, "aux_loss", got.router_losses.balance, sum.balance);
  compare_scalar(order, judge, -1, "z_loss", got.router_losses.z, sum.z);
}

// A listener that was never called has compared nothing, which must not pass.
void StepComparison::require_calls() {
  const bool all_forward =
      std::all_of(forward_order_.begin(), forward_order_.end(), [](auto o) { return o >= 0; });
  if (all_forward && backwards_.size() == forward_order_.size() && gradients_seen_ && step_seen_)
    return;
  note(kPerCall * calls_, {JudgeKind::vacuous, "the engine did not show every pass of the step",
                           where_is(-1, -1, "", "")});
}

// The engine reports the tokens of all ranks together.
void StepComparison::compare_tokens(const StepResult& got) {
  const std::int64_t tokens = tokens_of(expected_.data);
  if (got.tokens == tokens) return;
  FirstDifference where = where_is(-1, -1, "", "tokens");
  where.got = std::to_string(got.tokens);
  where.want = std::to_string(tokens);
  note(kPerCall * calls_ + 1,
       {JudgeKind::vacuous,
        "the engine counts " + where.got + " tokens in documents of " + where.want, where});
}

void StepComparison::finish_step(const StepResult& got, Compared compared) {
  if (compared == Compared::every_pass) require_calls();
  if (compared == Compared::every_pass) compare_tokens(got);
  compare_losses(got, JudgeKind::loss);
  const std::int64_t order = kPerCall * calls_ + 2;
  compare_scalar(order, JudgeKind::norm, -1, "norm", got.norm, expected_.want.norm);
  compare_scalar(order, JudgeKind::norm, -1, "clip", got.clip, expected_.want.clip);
  compare_scalar(order, JudgeKind::norm, -1, "learning_rate", got.learning_rate,
                 expected_.want.learning_rate);
}

void StepComparison::finish_evaluation(const StepResult& got, Compared compared) {
  if (compared == Compared::every_pass) compare_tokens(got);
  compare_losses(got, JudgeKind::evaluation);
}

void StepComparison::compare_weights(const std::vector<oracle::Parameter>& want) {
  const std::int64_t order = kPerCall * calls_ + 3;
  if (!is_earlier(order)) return;
  std::vector<StoredValues> list;  // Read in one call, so that the host waits once.
  for (const ParameterView& view : engine_.parameters)
    list.insert(list.end(), {view.m, view.v, view.weight});
  const std::vector<std::vector<float>> got = engine_.read(list);
  std::set<std::size_t> seen;
  for (std::size_t i = 0; i < engine_.parameters.size(); ++i) {
    const ParameterView& view = engine_.parameters[i];
    const std::size_t index = view.index;
    if (index >= want.size() || view.name != want[index].name) {
      missing(order, JudgeKind::weights, where_is(-1, view.layer, "adamw", view.name), "oracle");
      continue;
    }
    seen.insert(index);
    const oracle::Parameter& whole = want[index];
    const auto judge = [&](const char* name, std::size_t place, const std::vector<float>& values) {
      const FirstDifference where = where_is(-1, view.layer, "adamw", view.name + name);
      compare_part(order, JudgeKind::weights, where, view, got[3 * i + place], values, whole.cols);
    };
    judge(".m", 0, whole.m);
    judge(".v", 1, whole.v);
    judge("", 2, whole.weight);
  }
  // A reference of the run itself names no parameter of another process, which compares it there.
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!want[i].name.empty() && !seen.contains(i) && has(want[i].layer, i == 0))
      missing(order, JudgeKind::weights, where_is(-1, want[i].layer, "adamw", want[i].name),
              "engine");
  }
}

void StepComparison::compare_biases(const std::vector<ExpertBiasView>& got,
                                    const std::vector<std::vector<float>>& want) {
  const std::int64_t order = kPerCall * calls_ + 3;
  std::vector<StoredValues> list;
  for (const ExpertBiasView& view : got) list.push_back(view.bias);
  const std::vector<std::vector<float>> values = engine_.read(list);
  std::size_t seen = 0;
  for (std::size_t layer = 0; layer < want.size(); ++layer) {
    if (want[layer].empty() || !has(static_cast<int>(layer), false)) continue;
    const std::string name = "layers." + std::to_string(layer) + ".router.expert_bias";
    const FirstDifference where = where_is(-1, static_cast<int>(layer), "update_expert_bias", name);
    if (seen == got.size()) return missing(order, JudgeKind::weights, where, "engine");
    compare(order, JudgeKind::weights, where, values[seen], want[layer], got[seen].bias.cols);
    ++seen;
  }
  if (seen < got.size())
    missing(order, JudgeKind::weights, where_is(-1, got[seen].layer, "", "router.expert_bias"),
            "oracle");
}

}  // namespace lockstep
