#include "harness/judge/comparison.h"

#include <algorithm>
#include <map>

#include "harness/base/bits.h"
#include "harness/judge/pack_rows.h"
#include "kernels/core/contract.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// One call of the engine has room for the loss that follows a forward pass.
constexpr std::int64_t kPerCall = 4;

// What no slot keeps, so that nobody can look at it; the gradients that it goes into show what it was.
bool is_recomputed(const Scenario::Model& model, const std::string& name) {
  const auto asked = [&](Recompute module) { return holds(model.recompute, module); };
  if (!name.starts_with("layers.")) return false;
  if (name.ends_with(".norm.out")) return asked(Recompute::layernorm);
  if (name.ends_with(".act")) return asked(Recompute::mlp_act);
  return (name.ends_with(".moe_act") || name.ends_with(".shared_act")) && asked(Recompute::moe_act);
}

// Of a ragged buffer as many rows are compared as the oracle filled; the engine's counts are judged by themselves.
StoredValues compared_part(const NamedTensor& got, const oracle::Tensor& want) {
  StoredValues values = got.tensor;
  if (got.rows == NamedTensor::Rows::ragged_buffer) values.rows = std::min(values.rows, want.rows);
  return values;
}

}  // namespace

void Comparison::attach(Read read, const std::vector<ParameterView>& parameters) {
  read_ = std::move(read);
  parameters_ = &parameters;
}

void Comparison::expect_step(std::int64_t step, const StepData& data, const oracle::StepResult& want,
                             const std::vector<oracle::Parameter>& after) {
  step_ = step;
  data_ = &data;
  want_ = &want;
  after_ = &after;
  evaluating_ = false;
  ++phases_;
  calls_ = 0;
  forward_order_.assign(want.microbatches.size() / static_cast<std::size_t>(ranks()), -1);
  backwards_.clear();
  gradients_seen_ = step_seen_ = false;
}

void Comparison::expect_evaluation(std::int64_t step, const StepData& data, const oracle::StepResult& want) {
  static const std::vector<oracle::Parameter> none;
  expect_step(step, data, want, none);
  evaluating_ = true;
}

void Comparison::note(std::int64_t order, Difference difference) {
  if (!earlier(order)) return;
  order_ = place_of(order);
  first_ = std::move(difference);
}

FirstDifference Comparison::at(int microbatch, int layer, std::string op, std::string tensor) const {
  FirstDifference where;
  where.step = step_;
  where.rank = rank_;
  where.microbatch = microbatch;
  where.layer = layer;
  where.op = std::move(op);
  where.tensor = std::move(tensor);
  return where;
}

// Activations are [T, cols], or [1, T] for one value a row: then the column is the row of the pack.
void Comparison::name_document(FirstDifference& where, std::int64_t rows, std::int64_t cols) const {
  const std::int64_t length = scenario_.data.pack_length;
  const bool transposed = rows == 1 && cols == length;
  if (where.microbatch < 0 || (rows != length && !transposed)) return;
  const RowPlace place =
      place_of_row(scenario_.data, data_->microbatches.at(static_cast<std::size_t>(global(where.microbatch))),
                   transposed ? where.column : where.row);
  where.document = place.document;
  where.position = place.position;
}

void Comparison::compare(std::int64_t order, JudgeKind judge, FirstDifference where, std::span<const float> got,
                         std::span<const float> want, std::int64_t cols, bool rows_of_pack, std::int64_t first) {
  if (!earlier(order)) return;
  if (got.size() != want.size()) {
    where.got = std::to_string(got.size()) + " elements";
    where.want = std::to_string(want.size()) + " elements";
    return note(order, {judge, where.tensor + " has another shape", where});
  }
  const auto index = first_mismatch(got, want);
  if (!index) return;
  where.index = first + *index;
  where.row = where.index / cols;
  where.column = where.index % cols;
  where.got = value_text(got[*index]);
  where.want = value_text(want[*index]);
  where.ulp = ulp_distance(got[*index], want[*index]);
  if (rows_of_pack) name_document(where, static_cast<std::int64_t>(want.size()) / cols, cols);
  const bool nan = is_nan_bits(got[*index]) || is_nan_bits(want[*index]);
  note(order, {judge,
               where.tensor + (nan                ? " holds a NaN"
                               : sums_are_wanted_ ? " differs from the eager run's"
                                                  : " differs from the oracle's"),
               where});
}

void Comparison::compare_part(std::int64_t order, JudgeKind judge, FirstDifference where, const ParameterView& view,
                              std::span<const float> got, const std::vector<float>& want, std::int64_t cols) {
  const std::int64_t whole = std::ssize(want), count = std::ssize(got), row = view.is_vector ? 1 : cols;
  const bool inside = view.first >= 0 && view.first + count <= whole;
  if (!inside || view.first % row != 0 || count % row != 0 || count != view.weight.size()) {
    where.got = "elements " + std::to_string(view.first) + " to " + std::to_string(view.first + count);
    where.want = std::to_string(whole) + " elements";
    return note(order, {judge, where.tensor + " is no part of the oracle's", where});
  }
  const auto part = std::span(want).subspan(static_cast<std::size_t>(view.first), static_cast<std::size_t>(count));
  compare(order, judge, where, got, part, cols, false, view.first);
}

void Comparison::compare_scalar(std::int64_t order, JudgeKind judge, int microbatch, const std::string& tensor,
                                float got, float want) {
  compare(order, judge, at(microbatch, -1, "", tensor), {&got, 1}, {&want, 1}, 1);
}

void Comparison::missing(std::int64_t order, JudgeKind judge, FirstDifference where, const std::string& side) {
  where.got = side == "engine" ? "missing" : "present";
  where.want = side == "engine" ? "present" : "missing";
  note(order, {judge, where.tensor + " is missing in the " + side, where});
}

void Comparison::forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool live) {
  const std::int64_t order = kPerCall * calls_++;
  if (!has(microbatch)) {
    return note(order, {JudgeKind::vacuous, "the engine ran a forward pass of a microbatch that the step does not have",
                        at(microbatch, -1, "", "")});
  }
  forward_order_[microbatch] = order;
  if (!live) return;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : activations) by_name[tensor.name] = &tensor;
  if (!earlier(order)) return;
  std::vector<StoredValues> list;
  for (const oracle::Tensor& tensor : want(microbatch).activations) {
    const auto found = by_name.find(tensor.name);
    if (found != by_name.end()) list.push_back(compared_part(*found->second, tensor));
  }
  const std::vector<std::vector<float>> seen = read_(list);
  auto values = seen.begin();
  for (const oracle::Tensor& tensor : want(microbatch).activations) {
    const auto found = by_name.find(tensor.name);
    if (is_recomputed(scenario_.model, tensor.name)) {
      if (found == by_name.end()) continue;
      note(order, {JudgeKind::activation, tensor.name + " is saved, although it is to be computed again",
                   at(microbatch, tensor.layer, found->second->op, tensor.name)});
      by_name.erase(found);
      ++values;
      continue;
    }
    if (found == by_name.end()) {
      missing(order, JudgeKind::activation, at(microbatch, tensor.layer, "", tensor.name), "engine");
      continue;
    }
    const NamedTensor& got = *found->second;
    compare(order, JudgeKind::activation, at(microbatch, got.layer, got.op, got.name), *values++, tensor.values,
            tensor.cols, got.rows == NamedTensor::Rows::pack);
    by_name.erase(found);
  }
  for (const auto& [name, tensor] : by_name) {
    missing(order, JudgeKind::activation, at(microbatch, tensor->layer, tensor->op, name), "oracle");
  }
}

void Comparison::backward_done(int microbatch, bool live) {
  const std::int64_t order = kPerCall * calls_++;
  backwards_.insert(microbatch);
  if (!live || !has(microbatch) || !shows_gradients() || !earlier(order)) return;
  const std::vector<std::vector<float>> seen = read_each([](const ParameterView& view) {
    return StoredValues(view.microbatch_gradient ? view.microbatch_gradient : view.gradient);
  });
  for (std::size_t i = parameters_->size(); i-- > 0;) compare_gradient(order, microbatch, (*parameters_)[i], seen[i]);
}

void Comparison::compare_gradient(std::int64_t order, int microbatch, const ParameterView& view,
                                  const std::vector<float>& got) {
  const auto& gradients = want(microbatch).gradients;
  const auto parameter = static_cast<std::size_t>(view.index);
  const FirstDifference where = at(microbatch, view.layer, "", view.name + ".gradient");
  if (parameter >= std::min(gradients.size(), after_->size()))
    return missing(order, JudgeKind::gradient, where, "oracle");
  const std::int64_t cols = (*after_)[parameter].cols;
  if (view.microbatch_gradient || sums_are_wanted_) {
    compare(order, JudgeKind::gradient, where, got, gradients[parameter], cols);
  } else if (view.gradient) {
    compare(order, JudgeKind::gradient, where, got, accumulated(microbatch, parameter), cols);
  } else {
    missing(order, JudgeKind::gradient, where, "engine");
  }
}

std::vector<std::vector<float>> Comparison::read_each(StoredValues (*member)(const ParameterView&)) const {
  std::vector<StoredValues> list;
  for (const ParameterView& view : *parameters_) list.push_back(member(view));
  return read_(list);
}

// Of the microbatches up to this one, in ascending order: what an accumulator holds that took the gradient at once.
std::vector<float> Comparison::accumulated(int microbatch, std::size_t parameter) const {
  std::vector<float> sum(want(microbatch).gradients[parameter].size());
  for (int m = 0; m <= microbatch; ++m) {
    const std::vector<float>& term = want(m).gradients[parameter];
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] = add(sum[e], term[e]);
  }
  return sum;
}

void Comparison::gradients_done() {
  const std::int64_t order = kPerCall * calls_++;
  gradients_seen_ = true;
  if (!earlier(order)) return;
  const std::vector<std::vector<float>> seen =
      read_each([](const ParameterView& view) { return StoredValues(view.gradient); });
  for (std::size_t i = parameters_->size(); i-- > 0;) {
    const ParameterView& view = (*parameters_)[i];
    const FirstDifference where = at(-1, view.layer, "accumulate", view.name + ".gradient");
    const auto parameter = static_cast<std::size_t>(view.index);
    if (parameter >= after_->size()) {
      missing(order, JudgeKind::gradient, where, "oracle");
      continue;
    }
    const oracle::Parameter& want = (*after_)[parameter];
    compare_part(order, JudgeKind::gradient, where, view, seen[i], want.gradient, want.cols);
  }
}

void Comparison::step_done() {
  ++calls_;
  step_seen_ = true;
}

void Comparison::compare_losses(const StepResult& got, JudgeKind judge) {
  const std::int64_t end = kPerCall * calls_;
  if (std::ssize(got.microbatch_losses) != microbatches()) {
    return note(end, {judge,
                      "the engine ran " + std::to_string(got.microbatch_losses.size()) + " microbatches, the oracle " +
                          std::to_string(microbatches()),
                      at(-1, -1, "", "loss")});
  }
  for (int m = 0; m < microbatches(); ++m) {
    const auto at = static_cast<std::size_t>(m);
    const std::int64_t forward = forward_order_[at] < 0 ? end : forward_order_[at] + 1;
    compare_scalar(forward, judge, m, "loss", got.microbatch_losses[at], want(m).loss);
  }
  compare_router_losses(got, judge);
  compare_scalar(end + 1, judge, -1, "loss", got.loss, want_->loss);
}

// One pair of losses for each layer `E`, known when the forward pass is.
void Comparison::compare_router_losses(const StepResult& got, JudgeKind judge) {
  for (int m = 0; m < microbatches(); ++m) {
    const auto& expected = want(m).experts;
    static const std::vector<RouterLosses> none;
    const auto& all = got.microbatch_router_losses;
    const auto at_m = static_cast<std::size_t>(m);
    const std::vector<RouterLosses>& pairs = at_m < all.size() ? all[at_m] : none;
    const std::int64_t order = forward_order_[at_m] < 0 ? kPerCall * calls_ : forward_order_[at_m] + 1;
    if (pairs.size() != expected.size()) return missing(order, judge, at(m, -1, "", "router losses"), "engine");
    for (std::size_t x = 0; x < expected.size(); ++x) {
      const std::string layer = "layers." + std::to_string(expected[x].layer);
      compare_scalar(order, judge, m, layer + ".aux_loss", pairs[x].balance, expected[x].aux_loss);
      compare_scalar(order, judge, m, layer + ".z_loss", pairs[x].z, expected[x].z_loss);
    }
  }
  compare_folded_router_losses(got, judge);
}

// Of all ranks, in order of number: microbatches, in each its layers.
void Comparison::compare_folded_router_losses(const StepResult& got, JudgeKind judge) {
  RouterLosses sum;
  for (const oracle::MicrobatchResult& microbatch : want_->microbatches) {
    for (const auto& layer : microbatch.experts) sum = {add(sum.balance, layer.aux_loss), add(sum.z, layer.z_loss)};
  }
  const std::int64_t order = kPerCall * calls_ + 1;
  compare_scalar(order, judge, -1, "aux_loss", got.router_losses.balance, sum.balance);
  compare_scalar(order, judge, -1, "z_loss", got.router_losses.z, sum.z);
}

// A judge that was never called has seen nothing.
void Comparison::require_calls() {
  const bool all_forward = std::all_of(forward_order_.begin(), forward_order_.end(), [](auto o) { return o >= 0; });
  if (all_forward && backwards_.size() == forward_order_.size() && gradients_seen_ && step_seen_) return;
  note(kPerCall * calls_, {JudgeKind::vacuous, "the engine did not show every pass of the step", at(-1, -1, "", "")});
}

// What is reported of all ranks, for those who count tokens a second.
void Comparison::compare_tokens(const StepResult& got) {
  const std::int64_t tokens = tokens_of(*data_);
  if (got.tokens == tokens) return;
  FirstDifference where = at(-1, -1, "", "tokens");
  where.got = std::to_string(got.tokens);
  where.want = std::to_string(tokens);
  note(kPerCall * calls_ + 1,
       {JudgeKind::vacuous, "the engine counts " + where.got + " tokens in documents of " + where.want, where});
}

void Comparison::finish_step(const StepResult& got, bool listened) {
  if (listened) require_calls();
  if (listened) compare_tokens(got);
  compare_losses(got, JudgeKind::loss);
  const std::int64_t order = kPerCall * calls_ + 2;
  compare_scalar(order, JudgeKind::norm, -1, "norm", got.norm, want_->norm);
  compare_scalar(order, JudgeKind::norm, -1, "clip", got.clip, want_->clip);
  compare_scalar(order, JudgeKind::norm, -1, "learning_rate", got.learning_rate, want_->learning_rate);
}

void Comparison::finish_evaluation(const StepResult& got, bool listened) {
  if (listened) compare_tokens(got);
  compare_losses(got, JudgeKind::evaluation);
}

void Comparison::compare_weights(const std::vector<oracle::Parameter>& want) {
  const std::int64_t order = kPerCall * calls_ + 3;
  if (!earlier(order)) return;
  std::vector<StoredValues> list;  // All at once: the host waits once.
  for (const ParameterView& view : *parameters_) list.insert(list.end(), {view.m, view.v, view.weight});
  const std::vector<std::vector<float>> got = read_(list);
  std::set<std::size_t> seen;
  for (std::size_t i = 0; i < parameters_->size(); ++i) {
    const ParameterView& view = (*parameters_)[i];
    const auto index = static_cast<std::size_t>(view.index);
    if (index >= want.size() || view.name != want[index].name) {
      missing(order, JudgeKind::weights, at(-1, view.layer, "adamw", view.name), "oracle");
      continue;
    }
    seen.insert(index);
    const oracle::Parameter& whole = want[index];
    const auto judge = [&](const char* name, std::size_t place, const std::vector<float>& values) {
      const FirstDifference where = at(-1, view.layer, "adamw", view.name + name);
      compare_part(order, JudgeKind::weights, where, view, got[3 * i + place], values, whole.cols);
    };
    judge(".m", 0, whole.m);
    judge(".v", 1, whole.v);
    judge("", 2, whole.weight);
  }
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!seen.contains(i)) missing(order, JudgeKind::weights, at(-1, want[i].layer, "adamw", want[i].name), "engine");
  }
}

void Comparison::compare_biases(const std::vector<ExpertBiasView>& got, const std::vector<std::vector<float>>& want) {
  const std::int64_t order = kPerCall * calls_ + 3;
  std::vector<StoredValues> list;
  for (const ExpertBiasView& view : got) list.push_back(view.bias);
  const std::vector<std::vector<float>> values = read_(list);
  std::size_t seen = 0;
  for (std::size_t layer = 0; layer < want.size(); ++layer) {
    if (want[layer].empty()) continue;
    const std::string name = "layers." + std::to_string(layer) + ".router.expert_bias";
    const FirstDifference where = at(-1, static_cast<int>(layer), "update_expert_bias", name);
    if (seen == got.size()) return missing(order, JudgeKind::weights, where, "engine");
    compare(order, JudgeKind::weights, where, values[seen], want[layer], got[seen].bias.cols);
    ++seen;
  }
  if (seen < got.size())
    missing(order, JudgeKind::weights, at(-1, got[seen].layer, "", "router.expert_bias"), "oracle");
}

}  // namespace lockstep
