// R16: losses and gradients are those of the model, computed in binary64 from the weights, tokens
// and scalars of the feed, within what roundings of the engine's precision may move.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/base/bits.h"
#include "harness/foreign/double_reference.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/rules/legality.h"

namespace lockstep::foreign {
namespace {

constexpr std::size_t kMostOfADump = 256;
// A tensor may be off by so many times the root mean square of what nudging moves
// (docs/engine-protocol.md, section 13). In fp32 roundings of sums, which depend on their order,
// are as large as those of what is stored, so more is allowed.
constexpr double kMultipleFp32 = 8, kMultipleBf16 = 4;
constexpr double kLeast = 0x1p-126;  // Below it a number is no normal one of either precision.
// A tensor of which so much may be wrong is not looked at: half, so that a doubled one is found.
constexpr double kMostAllowed = 0.5;

using Tensors = std::map<TensorId, wire::TypedTensor>;

Tensors dumped(EngineCase& one, const std::vector<TensorId>& ids, EngineRun& run) {
  Tensors tensors;
  for (std::size_t first = 0; first < ids.size(); first += kMostOfADump) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kMostOfADump, ids.size() - first));
    EngineCase::Dump dump = one.dump(one.asked(), {begin, begin + count});
    tensors.merge(dump.tensors);
    run = std::move(dump.run);
  }
  return tensors;
}

// Weights at the begin of a step: the feed's, or those that the engine had after the step before.
std::optional<StepWeights> weights_at(EngineCase& one, std::int64_t step) {
  Tensors after;
  if (step > 0) {
    std::vector<TensorId> ids;
    for (const TensorId& id : one.base().order) {
      if (id.kind == "weight" && id.at == StepPlace{false, step - 1}) ids.push_back(id);
    }
    EngineRun ignored;
    after = dumped(one, ids, ignored);
  }
  StepWeights begin;
  const Scenario::Model& model = one.scenario().model;
  if (model.moe.expert_bias) begin.expert_bias.resize(model.pattern.size());
  for (const auto& [name, tensor] : *one.feed().weights) {
    const wire::TypedTensor* from = &tensor;
    if (step > 0) {
      const auto found = after.find({.kind = "weight", .name = name, .at = {false, step - 1}});
      if (found == after.end() || found->second.dtype != "F32") return {};
      from = &found->second;
    }
    const std::vector<float> values = wire::values_of<float>(*from);
    std::vector<double> wide(values.begin(), values.end());
    if (name.ends_with("router.bias")) {
      at(begin.expert_bias, std::stoll(name.substr(7))) = std::move(wide);
    } else {
      begin.weights.push_back(std::move(wide));
    }
  }
  return begin;
}

// The multiple of what nudging moves that a tensor may be off.
double multiple_of(const EngineCase& one) {
  return stores_bf16(one.scenario()) ? kMultipleBf16 : kMultipleFp32;
}

std::int64_t targets_of(const std::vector<Microbatch>& packs) {
  std::int64_t targets = 0;
  for (const Microbatch& pack : packs) {
    for (const Document& one : pack.documents)
      targets += std::ranges::count_if(one.targets, [](std::int32_t t) { return t >= 0; });
  }
  return targets;
}

// The loss scale of a step; nothing where it is the engine's own.
std::optional<double> scale_of(const EngineCase& one, std::int64_t step) {
  if (one.honours("feed.loss_scale")) return at(one.feed().loss_scale, step);
  if (!one.hello().loss_scaled) return {};
  return 1.0 /
         static_cast<double>(std::max<std::int64_t>(targets_of(one.feed().training(step)), 1));
}

// The engine's values of a tensor, of row tensors the rows of documents; nothing where it has
// another shape.
std::optional<std::vector<double>> got(const EngineRun& run, const wire::TypedTensor& tensor,
                                       const ExpectedTensor& want) {
  const std::vector<float> values = as_floats(tensor);
  std::vector<double> wide;
  if (!want.id.is_of_a_microbatch()) {
    wide.assign(values.begin(), values.end());
  } else {
    const auto rows = run.rows.find({want.id.at, want.id.microbatch});
    if (rows == run.rows.end()) return {};
    for (const auto& [begin, end] : rows->second) {
      if (end * want.columns > std::ssize(values)) return {};
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin * want.columns);
      wide.insert(wide.end(), first,
                  first + static_cast<std::ptrdiff_t>((end - begin) * want.columns));
    }
  }
  if (wide.size() != want.values.size()) return {};
  return wide;
}

struct Distance {
  double error = 0, allowed = 0;
  std::int64_t worst = 0;                              // The element that is furthest off.
  bool is_within() const { return error <= allowed; }  // False for a NaN.
};

Distance distance(const ExpectedTensor& want, const std::vector<double>& values,
                  const std::string& dtype, double multiple) {
  Distance far;
  double sum = 0, most = -1;
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const double off = at(values, i) - at(want.values, i);
    sum += off * off;
    if (std::abs(off) <= most) continue;
    most = std::abs(off);
    far.worst = i;
  }
  const double unit = dtype == "BF16" ? 0x1p-7 : 0x1p-23;
  const double stored = unit * std::max(want.terms, want.length());
  far.error = std::sqrt(sum);
  far.allowed = std::max(multiple * want.moved, kMultipleFp32 * stored) +
                kLeast * std::sqrt(static_cast<double>(values.size()));
  return far;
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(3);
  text << value;
  return text.str();
}

class OracleJudge {
 public:
  explicit OracleJudge(EngineCase& one) : one_(one), multiple_(multiple_of(one)) {}

  // The first step, and the last where the engine tells of the weights before it.
  void judge() {
    const std::int64_t last = one_.feed().steps - 1;
    judge(0);
    if (last > 0 && one_.hello().observes_kind("weight")) judge(last);
    if (margin_.tensor.empty()) throw NotApplicable(why_not_);
    one_.tell_margin(margin_);
  }

 private:
  void judge(std::int64_t step) {
    const std::optional<StepWeights> begin = weights_at(one_, step);
    if (!begin) return;
    const std::optional<double> scale = scale_of(one_, step);
    const ExpectedStep expected = expected_step(one_, step, *begin, scale.value_or(1));
    if (!expected.why_not.empty()) {
      why_not_ = expected.why_not;
      return;
    }
    std::vector<TensorId> ids;
    for (const ExpectedTensor& want : expected.order) {
      const bool judged = want.id.kind == "token_loss" || (want.id.kind == "gradient" && scale);
      if (judged && is_there(want.id)) ids.push_back(want.id);
    }
    if (first_wrong(expected, ids, true) == nullptr) return;
    // One more run shows all that can tell where it begins.
    std::vector<TensorId> more;
    for (const ExpectedTensor& want : expected.order) {
      const bool known = want.id.kind == "activation" && is_there(want.id);
      if (known || std::ranges::find(ids, want.id) != ids.end()) more.push_back(want.id);
    }
    if (first_wrong(expected, ids, false) == nullptr) report_not_repeated();
    first_wrong(expected, more, false);
    report();
  }

  bool is_there(const TensorId& id) const {
    return one_.base().tensors.contains(id) && !one_.is_left_out(id);
  }

  struct Wrong {
    const ExpectedTensor* want;
    Distance far;
    FirstDifference where;
    std::string reason;
  };

  // The result is null where all of these are within what is allowed.
  const Wrong* first_wrong(const ExpectedStep& expected, const std::vector<TensorId>& ids,
                           bool tells_margin) {
    EngineRun run;
    const Tensors tensors = dumped(one_, ids, run);
    for (const ExpectedTensor& want : expected.order) {
      const auto found = tensors.find(want.id);
      if (found == tensors.end()) continue;
      const std::optional<std::vector<double>> values = got(run, found->second, want);
      if (!values && want.id.kind == "activation") continue;  // Another tensor of this name.
      if (!values) throw Violated{.reason = want.id.text() + " has another shape than the model's"};
      const Distance far = distance(want, *values, found->second.dtype, multiple_);
      const double length = want.length();
      if (far.allowed > kMostAllowed * length && length > 0) {
        why_not_ = "rounding may move half of each tensor";
        continue;
      }
      if (!far.is_within()) {
        note(run, want, far, *values, found->second.dtype == "BF16");
        return &*wrong_;
      }
      if (tells_margin && length > 0 && far.error >= margin_.used * far.allowed)
        margin_ = {far.error / far.allowed, far.allowed / length, want.id.text()};
    }
    return nullptr;
  }

  void note(const EngineRun& run, const ExpectedTensor& want, const Distance& far,
            const std::vector<double>& values, bool bf16) {
    FirstDifference where;
    where.step = want.id.at.step;
    where.tensor = want.id.kind + ":" + want.id.name;
    if (want.id.name.starts_with("layers."))
      std::istringstream(want.id.name.substr(7)) >> where.layer;
    where.got_from = "the engine";
    where.want_from = "the model in binary64";
    where.bf16 = bf16;
    place(run, want, far.worst, where);
    const auto got = static_cast<float>(at(values, far.worst));
    const auto expected = static_cast<float>(at(want.values, far.worst));
    where.got = value_text(got);
    where.want = value_text(expected);
    where.ulp = ulp_distance(got, expected);
    where.stored_ulp = bf16 ? bf16_ulp_distance(got, expected) : where.ulp;
    const double length = want.length();
    wrong_ = {&want, far, where,
              want.id.text() + " is " + number(far.error) +
                  " off its value in binary64, whose length is " + number(length) + "; " +
                  number(far.allowed) + " is allowed, " + number(multiple_) +
                  " times what nudging by one unit in the last place moves"};
  }

  // An element of a row tensor lies in a document.
  void place(const EngineRun& run, const ExpectedTensor& want, std::int64_t element,
             FirstDifference& where) const {
    where.index = element;
    const std::vector<std::int64_t>& shape = one_.base().tensors.at(want.id).shape;
    const std::int64_t columns = want.id.is_of_a_microbatch() ? want.columns
                                 : shape.size() < 2           ? 1
                                                              : shape.back();
    where.row = element / columns;
    where.column = element % columns;
    if (!want.id.is_of_a_microbatch()) return;
    where.rank = want.id.microbatch % one_.ranks();
    where.microbatch = want.id.microbatch / one_.ranks();
    std::int64_t before = 0, document = 0;
    for (const auto& [begin, end] : run.rows.at({want.id.at, want.id.microbatch})) {
      const std::int64_t position = where.row - before;
      if (position < end - begin) {
        where.document = document;
        where.position = position;
        where.row = begin + position;
        where.index = where.row * columns + where.column;
        return;
      }
      before += end - begin;
      ++document;
    }
  }

  [[noreturn]] void report_not_repeated() const {
    const std::string once = wrong_->reason + "; in one more run it kept to that";
    if (!one_.hello().deterministic) throw Unstable{once, ""};
    throw Violated{.reason = once + ", and the engine claims to be deterministic"};
  }

  [[noreturn]] void report() const {
    throw Violated{.reason = wrong_->reason, .first_difference = wrong_->where};
  }

  EngineCase& one_;
  double multiple_;
  Margin margin_;
  std::string why_not_ = "no tensor is long enough";
  std::optional<Wrong> wrong_;
};

}  // namespace

std::string has_oracle(const EngineCase& one) {
  const Hello& hello = one.hello();
  if (!hello.weights_by_name) return "the engine does not begin with the feed's weights";
  if (!hello.observes_kind("gradient") && !hello.observes_kind("token_loss"))
    return "neither gradients nor token losses are observed";
  const bool dropout = one.scenario().model.dropout.value() > 0;
  if (dropout && !hello.dropout_by_key) return "dropout draws masks of the engine's own";
  if (one.scenario().numerics.front() == Numerics::fp8) return "there is no reference for fp8";
  return "";
}

void oracle(EngineCase& one, const Choices&) { OracleJudge(one).judge(); }

}  // namespace lockstep::foreign
