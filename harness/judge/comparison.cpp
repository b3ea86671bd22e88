#include "harness/judge/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/plan/chunks.h"
#include "harness/base/bits.h"
#include "harness/judge/pack_rows.h"
#include "kernels/core/contract.h"
#include "kernels/core/require.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Where ranks gather codes of weights, each takes the amax of its own rows, and codes of weights
// that come and go have left their slot when a pass is over.
bool is_gathered(const Scenario& scenario, const std::string& part) {
  if (!gathers_fp8_codes(scenario)) return false;
  if (part.ends_with(".w_amax")) return scenario.fp8.recipe == Fp8Recipe::delayed;
  return part.ends_with(".w8") && scenario.fsdp.strategy == Sharding::optim_grads_params;
}

// In fp8 a rank that has some of the experts has segments of other ranks for them, and the codes of
// their weights alone. Histories are those of all experts everywhere.
bool is_of_owner(const Scenario& scenario, const std::string& tensor) {
  const bool of_experts = tensor.find(".expert_fc1.") != std::string::npos ||
                          tensor.find(".expert_fc2.") != std::string::npos;
  return expert_ranks(scenario) > 1 && of_experts && !tensor.ends_with("_history");
}

// A recomputed output is stored nowhere, so it cannot be read. Errors in it show in the gradients
// that depend on it. Where experts lie on several ranks, what they compute between their input and
// their output is stored on those ranks, with the rows of others.
bool is_recomputed(const Scenario& scenario, const std::string& name) {
  const Scenario::Model& model = scenario.model;
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::size_t end = name.find('.', kLayers.size());
  const char symbol = model.pattern.at(std::stoul(name.substr(kLayers.size(), end)));
  const std::string part = name.substr(end + 1);
  const auto asked = [&](Recompute module) { return holds(model.recompute, module); };
  const std::string first = part.substr(0, part.find('.'));
  if (first != part && holds(words<Fp8Layer>(), first)) {
    if (is_of_owner(scenario, name)) return true;
    if (part.ends_with(".x8"))
      return holds(scenario.fp8.save_original_input, value_of<Fp8Layer>(first));
    return is_gathered(scenario, part);
  }
  if (part == "norm.out") {
    const std::optional<Fp8Layer> reader = reader_of_norm(symbol);
    return asked(Recompute::layernorm) || (reader && passes_input(scenario, *reader));
  }
  if (part == "norm.rstd" || part == "out") return false;
  switch (symbol) {
    case '*':
      return part.starts_with("core_attn.") && asked(Recompute::core_attn);
    case '-':
      if (part == "act" && passes_input(scenario, Fp8Layer::mlp_fc2)) return true;
      return asked(Recompute::mlp) || (part == "act" && asked(Recompute::mlp_act));
    case 'M':
      return asked(Recompute::mamba) ||
             (part == "gated_norm.out" && passes_input(scenario, Fp8Layer::mamba_out_proj));
    default:
      if ((part == "expert_fc1" || part == "moe_act") && expert_ranks(scenario) > 1) return true;
      if (part == "dispatched" && passes_input(scenario, Fp8Layer::expert_fc1)) return true;
      if (part == "moe_act" && passes_input(scenario, Fp8Layer::expert_fc2)) return true;
      if (part == "shared_act" && passes_input(scenario, Fp8Layer::shared_fc2)) return true;
      return asked(Recompute::moe) ||
             ((part == "moe_act" || part == "shared_act") && asked(Recompute::moe_act));
  }
}

// A ragged buffer is compared in the rows that the oracle filled; the engine's row counts are
// judged separately.
StoredValues compared_part(const NamedTensor& got, const oracle::Tensor& want) {
  StoredValues values = got.tensor;
  if (got.rows == NamedTensor::Rows::ragged_buffer) values.rows = std::min(values.rows, want.rows);
  return values;
}

// Boundaries of unused slots repeat the last one, and the capacity is the engine's own choice.
std::vector<float> for_capacity(std::vector<float> boundaries, std::size_t count) {
  while (boundaries.size() > 1 && boundaries.back() == boundaries.end()[-2]) boundaries.pop_back();
  boundaries.resize(std::max(boundaries.size(), count), boundaries.back());
  return boundaries;
}

bool holds_amaxes(const std::string& tensor) {
  return tensor.ends_with("_amax") || tensor.ends_with("_history");
}

// An operand of fp8 with an Inf has no exponent: a violation, like a NaN (arithmetic.md 5.3).
std::optional<std::int64_t> first_infinite(std::span<const float> values) {
  const auto found = std::ranges::find_if(values, [](float x) { return std::isinf(x); });
  if (found == values.end()) return {};
  return found - values.begin();
}

JudgeKind judge_of(const NamedTensor& tensor) {
  return tensor.rows == NamedTensor::Rows::slots ? JudgeKind::metadata : JudgeKind::activation;
}

}  // namespace

StepComparison::StepComparison(FirstOfRank& found, const ComparedRank& rank,
                               const ComparedEngine& engine, const ExpectedResults& expected,
                               std::int64_t phase)
    : found_(found),
      rank_(rank),
      engine_(engine),
      expected_(expected),
      phase_(phase),
      stages_(stages_of_layers(rank.scenario)) {
  forward_order_.assign(expected.want.microbatches.size() / static_cast<std::size_t>(ranks()), -1);
}

bool StepComparison::has(int layer, bool of_embedding) const {
  const std::int64_t stage = layer >= 0     ? at(stages_, layer)
                             : of_embedding ? stages_.front()
                                            : stages_.back();
  return stage == rank_.rank / ranks();
}

// Every stage has the boundaries of packs.
bool StepComparison::has(const oracle::Tensor& tensor) const {
  return tensor.name.starts_with("pack.") ||
         has(tensor.layer, tensor.name.starts_with("embedding."));
}

FirstDifference StepComparison::where_is(int microbatch, int layer, std::string op,
                                         std::string tensor) const {
  FirstDifference where;
  where.step = expected_.step;
  where.rank = rank_.rank;
  where.microbatch = microbatch;
  where.layer = layer;
  where.op = std::move(op);
  where.tensor = std::move(tensor);
  return where;
}

// Activations are [T, cols]; those with one value per row are [1, T], and there the column is the
// row of the pack.
void StepComparison::name_document(FirstDifference& where, std::int64_t rows,
                                   std::int64_t cols) const {
  const std::int64_t length = scenario().data.pack_length;
  const bool transposed = rows == 1 && cols == length;
  if (where.microbatch < 0 || (rows != length && !transposed)) return;
  const RowPlace place =
      place_of_row(scenario().data, at(expected_.data.microbatches, global(where.microbatch)),
                   transposed ? where.column : where.row);
  where.document = place.document;
  where.position = place.position;
}

void StepComparison::compare(std::int64_t order, JudgeKind judge, FirstDifference where,
                             std::span<const float> got, std::span<const float> want,
                             std::int64_t cols, bool rows_of_pack, std::int64_t first) {
  if (!is_earlier(order)) return;
  if (got.size() != want.size()) {
    where.got = std::to_string(got.size()) + " elements";
    where.want = std::to_string(want.size()) + " elements";
    return note(order, {judge, where.tensor + " has another shape", where});
  }
  auto index = first_mismatch(got, want);
  if (!index && holds_amaxes(where.tensor)) index = first_infinite(got);
  if (!index) return;
  where.index = first + *index;
  where.row = where.index / cols;
  where.column = where.index % cols;
  where.got = value_text(got[*index]);
  where.want = value_text(want[*index]);
  where.ulp = ulp_distance(got[*index], want[*index]);
  where.stored_ulp = where.bf16 ? bf16_ulp_distance(got[*index], want[*index]) : where.ulp;
  if (rows_of_pack) name_document(where, static_cast<std::int64_t>(want.size()) / cols, cols);
  const bool nan = is_nan_bits(got[*index]) || is_nan_bits(want[*index]);
  const bool infinite = holds_amaxes(where.tensor) && std::isinf(got[*index]);
  note(order,
       {judge,
        where.tensor + (nan                                       ? " holds a NaN"
                        : infinite                                ? " holds an Inf"
                        : rank_.reference == Reference::eager_run ? " differs from the eager run's"
                                                                  : " differs from the oracle's"),
        where});
}

// Nobody shows such an amax, so it is looked for where the oracle has it.
void StepComparison::look_for_infinite(std::int64_t order, int microbatch,
                                       const oracle::Tensor& tensor) {
  if (!holds_amaxes(tensor.name) || !is_of_owner(scenario(), tensor.name)) return;
  compare(order, JudgeKind::activation, where_is(microbatch, tensor.layer, "", tensor.name),
          tensor.values, tensor.values, tensor.cols);
}

void StepComparison::compare_part(std::int64_t order, JudgeKind judge, FirstDifference where,
                                  const ParameterView& view, std::span<const float> got,
                                  const std::vector<float>& want, std::int64_t cols) {
  const std::int64_t whole = std::ssize(want), count = std::ssize(got),
                     row = view.is_vector ? 1 : cols;
  const bool inside = view.first >= 0 && view.first + count <= whole;
  if (!inside || view.first % row != 0 || count % row != 0 || count != view.weight.size()) {
    where.got =
        "elements " + std::to_string(view.first) + " to " + std::to_string(view.first + count);
    where.want = std::to_string(whole) + " elements";
    return note(order, {judge, where.tensor + " is no part of the oracle's", where});
  }
  const auto part = std::span(want).subspan(view.first, count);
  compare(order, judge, where, got, part, cols, false, view.first);
}

void StepComparison::compare_scalar(std::int64_t order, JudgeKind judge, int microbatch,
                                    const std::string& tensor, float got, float want) {
  compare(order, judge, where_is(microbatch, -1, "", tensor), {&got, 1}, {&want, 1}, 1);
}

void StepComparison::missing(std::int64_t order, JudgeKind judge, FirstDifference where,
                             const std::string& side) {
  where.got = side == "engine" ? "missing" : "present";
  where.want = side == "engine" ? "present" : "missing";
  note(order, {judge, where.tensor + " is missing in the " + side, where});
}

void StepComparison::forward_done(int microbatch, const std::vector<NamedTensor>& activations,
                                  bool live) {
  const std::int64_t order = kPerCall * calls_++;
  if (!has(microbatch)) {
    return note(order, {JudgeKind::vacuous,
                        "the engine ran a forward pass of a microbatch that the step does not have",
                        where_is(microbatch, -1, "", "")});
  }
  forward_order_[microbatch] = order;
  if (!live) return;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : activations) by_name[tensor.name] = &tensor;
  if (!is_earlier(order)) return;
  std::vector<StoredValues> list;
  for (const oracle::Tensor& tensor : want(microbatch).activations) {
    const auto found = by_name.find(tensor.name);
    if (found != by_name.end()) list.push_back(compared_part(*found->second, tensor));
  }
  const std::vector<std::vector<float>> seen = engine_.read(list);
  auto values = seen.begin();
  for (const oracle::Tensor& tensor : want(microbatch).activations) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end() && !has(tensor)) continue;
    if (is_recomputed(scenario(), tensor.name)) {
      if (found == by_name.end()) {
        look_for_infinite(order, microbatch, tensor);
        continue;
      }
      note(order,
           {JudgeKind::activation, tensor.name + " is saved, although it is to be computed again",
            where_is(microbatch, tensor.layer, found->second->op, tensor.name)});
      by_name.erase(found);
      ++values;
      continue;
    }
    if (found == by_name.end()) {
      missing(order, JudgeKind::activation, where_is(microbatch, tensor.layer, "", tensor.name),
              "engine");
      continue;
    }
    const NamedTensor& got = *found->second;
    FirstDifference where = where_is(microbatch, got.layer, got.op, got.name);
    where.bf16 = got.tensor.narrow;
    if (engine_.writers && *values != tensor.values) where.writers = engine_.writers(got.tensor);
    const bool by_slot = got.rows == NamedTensor::Rows::slots;
    compare(order, judge_of(got), std::move(where), *values,
            by_slot ? for_capacity(tensor.values, values->size()) : tensor.values,
            by_slot ? std::ssize(*values) : tensor.cols, got.rows == NamedTensor::Rows::pack);
    ++values;
    by_name.erase(found);
  }
  for (const auto& [name, tensor] : by_name) {
    missing(order, JudgeKind::activation, where_is(microbatch, tensor->layer, tensor->op, name),
            "oracle");
  }
}

// The engine shows what an evaluation leaves in place, so nothing is missing in it.
void StepComparison::evaluation_pass_done(int microbatch,
                                          const std::vector<NamedTensor>& activations) {
  const std::int64_t order = kPerCall * calls_++;
  if (!has(microbatch)) {
    return note(order, {JudgeKind::vacuous,
                        "the engine ran an evaluation of a microbatch that there is not",
                        where_is(microbatch, -1, "", "")});
  }
  forward_order_[microbatch] = order;
  if (!is_earlier(order)) return;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : activations) {
    const bool kept = !is_recomputed(scenario(), tensor.name);
    if (kept && judge_of(tensor) == JudgeKind::activation) by_name[tensor.name] = &tensor;
  }
  std::vector<StoredValues> list;
  std::vector<const oracle::Tensor*> compared;
  for (const oracle::Tensor& tensor : want(microbatch).activations) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) continue;
    list.push_back(compared_part(*found->second, tensor));
    compared.push_back(&tensor);
  }
  const std::vector<std::vector<float>> seen = engine_.read(list);
  for (std::size_t i = 0; i < compared.size(); ++i) {
    const NamedTensor& got = *by_name.at(compared[i]->name);
    FirstDifference where = where_is(microbatch, got.layer, got.op, got.name);
    where.bf16 = got.tensor.narrow;
    compare(order, JudgeKind::evaluation, std::move(where), seen[i], compared[i]->values,
            compared[i]->cols, got.rows == NamedTensor::Rows::pack);
  }
}

void StepComparison::backward_done(int microbatch, const std::vector<NamedTensor>& left,
                                   bool live) {
  const std::int64_t order = kPerCall * calls_++;
  backwards_.insert(microbatch);
  if (!live || !has(microbatch) || !is_earlier(order)) return;
  if (scenario().parallel.pipeline == 1)
    compare_all(order, microbatch, left, want(microbatch).left_by_backward);
  compare_gradients(order, microbatch, [](const ParameterView&) { return true; });
}

// The embedding is the first parameter; the others without a layer are the head's.
void StepComparison::chunk_backward_done(int microbatch, const Chunk& chunk,
                                         const std::vector<NamedTensor>& left) {
  const std::int64_t order = kPerCall * calls_++;
  if (!has(microbatch) || !is_earlier(order)) return;
  std::vector<oracle::Tensor> own;
  for (const oracle::Tensor& tensor : want(microbatch).left_by_backward) {
    if (chunk.has(tensor.layer)) own.push_back(tensor);
  }
  compare_all(order, microbatch, left, own);
  compare_gradients(order, microbatch, [&](const ParameterView& view) {
    if (view.layer >= 0) return chunk.has(view.layer);
    return view.index == 0 ? chunk.is_first : chunk.is_last;
  });
}

void StepComparison::compare_gradients(std::int64_t order, int microbatch,
                                       const std::function<bool(const ParameterView&)>& is_due) {
  if (!shows_gradients()) return;
  std::vector<const ParameterView*> due;
  std::vector<StoredValues> list;
  for (const ParameterView& view : engine_.parameters) {
    if (!is_due(view)) continue;  // It may never have been written yet.
    due.push_back(&view);
    list.emplace_back(view.microbatch_gradient ? view.microbatch_gradient : view.gradient);
  }
  const std::vector<std::vector<float>> seen = engine_.read(list);
  for (std::size_t i = due.size(); i-- > 0;) compare_gradient(order, microbatch, *due[i], seen[i]);
}

void StepComparison::compare_all(std::int64_t order, int microbatch,
                                 const std::vector<NamedTensor>& left,
                                 const std::vector<oracle::Tensor>& want) {
  std::vector<StoredValues> list;
  for (const NamedTensor& got : left) list.push_back(got.tensor);
  const std::vector<std::vector<float>> seen = engine_.read(list);
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < left.size(); ++i) by_name[left[i].name] = i;
  for (const oracle::Tensor& tensor : want) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) {
      if (!has(tensor)) continue;
      if (is_of_owner(scenario(), tensor.name)) {
        look_for_infinite(order, microbatch, tensor);
        continue;
      }
      missing(order, JudgeKind::activation, where_is(microbatch, tensor.layer, "", tensor.name),
              "engine");
      continue;
    }
    const NamedTensor& got = left[found->second];
    compare(order, JudgeKind::activation, where_is(microbatch, got.layer, got.op, got.name),
            seen[found->second], tensor.values, tensor.cols);
    by_name.erase(found);
  }
  for (const auto& [name, i] : by_name) {
    missing(order, JudgeKind::activation, where_is(microbatch, left[i].layer, left[i].op, name),
            "oracle");
  }
}

void StepComparison::rolled(const std::vector<NamedTensor>& histories) {
  const std::int64_t order = kPerCall * calls_++;
  if (is_earlier(order)) compare_all(order, -1, histories, expected_.want.histories);
}

void StepComparison::compare_gradient(std::int64_t order, int microbatch, const ParameterView& view,
                                      const std::vector<float>& got) {
  const auto& gradients = want(microbatch).gradients;
  const std::size_t parameter = view.index;
  const FirstDifference where = where_is(microbatch, view.layer, "", view.name + ".gradient");
  if (parameter >= std::min(gradients.size(), expected_.after.size()))
    return missing(order, JudgeKind::gradient, where, "oracle");
  const std::int64_t cols = expected_.after[parameter].cols;
  if (view.microbatch_gradient || rank_.reference == Reference::eager_run) {
    compare(order, JudgeKind::gradient, where, got, gradients[parameter], cols);
  } else if (view.gradient) {
    compare(order, JudgeKind::gradient, where, got, accumulated(microbatch, parameter), cols);
  } else {
    missing(order, JudgeKind::gradient, where, "engine");
  }
}

std::vector<std::vector<float>> StepComparison::read_each(
    StoredValues (*member)(const ParameterView&)) const {
  std::vector<StoredValues> list;
  for (const ParameterView& view : engine_.parameters) list.push_back(member(view));
  return engine_.read(list);
}

// Returns the sum over the microbatches up to this one in ascending order, which an accumulator
// holds if gradients are added to it at once.
std::vector<float> StepComparison::accumulated(int microbatch, std::size_t parameter) const {
  std::vector<float> sum(want(microbatch).gradients[parameter].size());
  for (int m = 0; m <= microbatch; ++m) {
    const std::vector<float>& term = want(m).gradients[parameter];
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] = add(sum[e], term[e]);
  }
  return sum;
}

StepComparison& Comparison::begin(const ComparedEngine& engine, const ExpectedResults& expected) {
  return step_.emplace(found_, rank_, engine, expected, ++phases_);
}

StepComparison& Comparison::last() {
  require(step_.has_value(), "the engine runs no pass before the step that it must give is known");
  return *step_;
}

void Comparison::forward_done(int microbatch, const std::vector<NamedTensor>& activations,
                              bool live) {
  last().forward_done(microbatch, activations, live);
}
void Comparison::backward_done(int microbatch, const std::vector<NamedTensor>& left, bool live) {
  last().backward_done(microbatch, left, live);
}
void Comparison::chunk_backward_done(int microbatch, const Chunk& chunk,
                                     const std::vector<NamedTensor>& left) {
  last().chunk_backward_done(microbatch, chunk, left);
}
void Comparison::evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) {
  last().evaluation_pass_done(microbatch, activations);
}
void Comparison::rolled(const std::vector<NamedTensor>& histories) { last().rolled(histories); }
void Comparison::gradients_done() { last().gradients_done(); }
void Comparison::step_done() { last().step_done(); }

}  // namespace lockstep
