#include "harness/comparison.h"

#include <algorithm>
#include <map>

#include "harness/bits.h"
#include "harness/pack_rows.h"
#include "kernels/contract.h"

namespace lockstep {
namespace {

// One call of the engine has room for the loss that follows a forward pass.
constexpr std::int64_t kPerCall = 4;

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
  calls_ = 0;
  forward_order_.assign(want.microbatches.size(), -1);
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
  order_ = order;
  first_ = std::move(difference);
}

FirstDifference Comparison::at(int microbatch, int layer, std::string op, std::string tensor) const {
  FirstDifference where;
  where.step = step_;
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
      place_of_row(scenario_.data, data_->microbatches.at(where.microbatch), transposed ? where.column : where.row);
  where.document = place.document;
  where.position = place.position;
}

void Comparison::compare(std::int64_t order, const std::string& judge, FirstDifference where,
                         std::span<const float> got, std::span<const float> want, std::int64_t cols,
                         bool rows_of_pack) {
  if (!earlier(order)) return;
  if (got.size() != want.size()) {
    where.got = std::to_string(got.size()) + " elements";
    where.want = std::to_string(want.size()) + " elements";
    return note(order, {judge, where.tensor + " has another shape", where});
  }
  const auto index = first_mismatch(got, want);
  if (!index) return;
  where.index = *index;
  where.row = *index / cols;
  where.column = *index % cols;
  where.got = value_text(got[*index]);
  where.want = value_text(want[*index]);
  where.ulp = ulp_distance(got[*index], want[*index]);
  if (rows_of_pack) name_document(where, static_cast<std::int64_t>(want.size()) / cols, cols);
  const bool nan = is_nan_bits(got[*index]) || is_nan_bits(want[*index]);
  note(order, {judge, where.tensor + (nan ? " holds a NaN" : " differs from the oracle's"), where});
}

void Comparison::compare_scalar(std::int64_t order, const std::string& judge, int microbatch, const std::string& tensor,
                                float got, float want) {
  compare(order, judge, at(microbatch, -1, "", tensor), {&got, 1}, {&want, 1}, 1);
}

void Comparison::missing(std::int64_t order, const std::string& judge, FirstDifference where, const std::string& side) {
  where.got = side == "engine" ? "missing" : "present";
  where.want = side == "engine" ? "present" : "missing";
  note(order, {judge, where.tensor + " is missing in the " + side, where});
}

void Comparison::forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool live) {
  const std::int64_t order = kPerCall * calls_++;
  if (microbatch < 0 || microbatch >= static_cast<int>(forward_order_.size())) {
    return note(order, {"vacuous", "the engine ran a forward pass of a microbatch that the step does not have",
                        at(microbatch, -1, "", "")});
  }
  forward_order_[microbatch] = order;
  if (!live) return;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : activations) by_name[tensor.name] = &tensor;
  if (!earlier(order)) return;
  std::vector<StoredValues> list;
  for (const oracle::Tensor& want : want_->microbatches[microbatch].activations) {
    const auto found = by_name.find(want.name);
    if (found != by_name.end()) list.push_back(compared_part(*found->second, want));
  }
  const std::vector<std::vector<float>> seen = read_(list);
  auto values = seen.begin();
  for (const oracle::Tensor& want : want_->microbatches[microbatch].activations) {
    const auto found = by_name.find(want.name);
    if (found == by_name.end()) {
      missing(order, "activation", at(microbatch, want.layer, "", want.name), "engine");
      continue;
    }
    const NamedTensor& got = *found->second;
    compare(order, "activation", at(microbatch, got.layer, got.op, got.name), *values++, want.values, want.cols,
            got.rows == NamedTensor::Rows::pack);
    by_name.erase(found);
  }
  for (const auto& [name, tensor] : by_name) {
    missing(order, "activation", at(microbatch, tensor->layer, tensor->op, name), "oracle");
  }
}

void Comparison::backward_done(int microbatch, bool live) {
  const std::int64_t order = kPerCall * calls_++;
  backwards_.insert(microbatch);
  if (!live || microbatch < 0 || microbatch >= static_cast<int>(want_->microbatches.size())) return;
  const auto& want = want_->microbatches[microbatch].gradients;
  if (!earlier(order)) return;
  const std::vector<std::vector<float>> seen = read_each([](const ParameterView& view) {
    return StoredValues(view.microbatch_gradient ? view.microbatch_gradient : view.gradient);
  });
  for (std::size_t i = parameters_->size(); i-- > 0;) {
    const ParameterView& view = (*parameters_)[i];
    const FirstDifference where = at(microbatch, view.layer, "", view.name + ".gradient");
    if (i >= want.size()) {
      missing(order, "gradient", where, "oracle");
    } else if (view.microbatch_gradient) {
      compare(order, "gradient", where, seen[i], want[i], view.weight.cols);
    } else if (view.gradient) {
      compare(order, "gradient", where, seen[i], accumulated(microbatch, i), view.weight.cols);
    } else {
      missing(order, "gradient", where, "engine");
    }
  }
}

std::vector<std::vector<float>> Comparison::read_each(StoredValues (*member)(const ParameterView&)) const {
  std::vector<StoredValues> list;
  for (const ParameterView& view : *parameters_) list.push_back(member(view));
  return read_(list);
}

// Of the microbatches up to this one, in ascending order: what an accumulator holds that took the gradient at once.
std::vector<float> Comparison::accumulated(int microbatch, std::size_t parameter) const {
  std::vector<float> sum(want_->microbatches[microbatch].gradients[parameter].size());
  for (int m = 0; m <= microbatch; ++m) {
    const std::vector<float>& term = want_->microbatches[m].gradients[parameter];
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
    if (i >= after_->size()) {
      missing(order, "gradient", where, "oracle");
    } else {
      compare(order, "gradient", where, seen[i], (*after_)[i].gradient, view.weight.cols);
    }
  }
}

void Comparison::step_done() {
  ++calls_;
  step_seen_ = true;
}

void Comparison::compare_losses(const StepResult& got, const std::string& judge) {
  const auto& want = want_->microbatches;
  if (got.microbatch_losses.size() != want.size()) {
    return note(kPerCall * calls_, {judge,
                                    "the engine ran " + std::to_string(got.microbatch_losses.size()) +
                                        " microbatches, the oracle " + std::to_string(want.size()),
                                    at(-1, -1, "", "loss")});
  }
  for (std::size_t m = 0; m < want.size(); ++m) {
    const std::int64_t forward = forward_order_[m] < 0 ? kPerCall * calls_ : forward_order_[m] + 1;
    compare_scalar(forward, judge, static_cast<int>(m), "loss", got.microbatch_losses[m], want[m].loss);
  }
  compare_router_losses(got, judge);
  compare_scalar(kPerCall * calls_ + 1, judge, -1, "loss", got.loss, want_->loss);
}

// One pair of losses for each layer `E`, known when the forward pass is.
void Comparison::compare_router_losses(const StepResult& got, const std::string& judge) {
  for (std::size_t m = 0; m < want_->microbatches.size(); ++m) {
    const auto& want = want_->microbatches[m].experts;
    static const std::vector<RouterLosses> none;
    const auto& all = got.microbatch_router_losses;
    const std::vector<RouterLosses>& pairs = m < all.size() ? all[m] : none;
    const int microbatch = static_cast<int>(m);
    const std::int64_t order = forward_order_[m] < 0 ? kPerCall * calls_ : forward_order_[m] + 1;
    if (pairs.size() != want.size()) return missing(order, judge, at(microbatch, -1, "", "router losses"), "engine");
    for (std::size_t x = 0; x < want.size(); ++x) {
      const std::string layer = "layers." + std::to_string(want[x].layer);
      compare_scalar(order, judge, microbatch, layer + ".aux_loss", pairs[x].balance, want[x].aux_loss);
      compare_scalar(order, judge, microbatch, layer + ".z_loss", pairs[x].z, want[x].z_loss);
    }
  }
}

// A judge that was never called has seen nothing.
void Comparison::require_calls() {
  const bool all_forward = std::all_of(forward_order_.begin(), forward_order_.end(), [](auto o) { return o >= 0; });
  if (all_forward && backwards_.size() == forward_order_.size() && gradients_seen_ && step_seen_) return;
  note(kPerCall * calls_, {"vacuous", "the engine did not show every pass of the step", at(-1, -1, "", "")});
}

void Comparison::finish_step(const StepResult& got, bool listened) {
  if (listened) require_calls();
  compare_losses(got, "loss");
  const std::int64_t order = kPerCall * calls_ + 2;
  compare_scalar(order, "norm", -1, "norm", got.norm, want_->norm);
  compare_scalar(order, "norm", -1, "clip", got.clip, want_->clip);
  compare_scalar(order, "norm", -1, "learning_rate", got.learning_rate, want_->learning_rate);
}

void Comparison::finish_evaluation(const StepResult& got) { compare_losses(got, "evaluation"); }

void Comparison::compare_weights(const std::vector<oracle::Parameter>& want) {
  const std::int64_t order = kPerCall * calls_ + 3;
  if (parameters_->size() != want.size()) {
    return note(order, {"weights",
                        "the engine has " + std::to_string(parameters_->size()) + " parameters, the oracle " +
                            std::to_string(want.size()),
                        at(-1, -1, "adamw", "")});
  }
  if (!earlier(order)) return;
  const auto m = read_each([](const ParameterView& view) { return StoredValues(view.m); });
  const auto v = read_each([](const ParameterView& view) { return StoredValues(view.v); });
  const auto weights = read_each([](const ParameterView& view) { return StoredValues(view.weight); });
  for (std::size_t i = 0; i < want.size(); ++i) {
    const ParameterView& view = (*parameters_)[i];
    const std::int64_t cols = want[i].cols;
    if (view.name != want[i].name) {
      missing(order, "weights", at(-1, view.layer, "adamw", view.name), "oracle");
      continue;
    }
    compare(order, "weights", at(-1, view.layer, "adamw", view.name + ".m"), m[i], want[i].m, cols);
    compare(order, "weights", at(-1, view.layer, "adamw", view.name + ".v"), v[i], want[i].v, cols);
    compare(order, "weights", at(-1, view.layer, "adamw", view.name), weights[i], want[i].weight, cols);
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
    if (seen == got.size()) return missing(order, "weights", where, "engine");
    compare(order, "weights", where, values[seen], want[layer], got[seen].bias.cols);
    ++seen;
  }
  if (seen < got.size()) missing(order, "weights", at(-1, got[seen].layer, "", "router.expert_bias"), "oracle");
}

}  // namespace lockstep
