// R16c: the gradient is the derivative of the loss, by differences of the engine's own losses.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/random.h"

namespace lockstep::foreign {
namespace {

// The weights move by these parts of their length. One of those that rounding does not hide must
// agree. Behind a norm of a row near 0 a loss may look straight over large steps and turn within
// small ones, so it is the smallest two that may accuse a gradient, not the first two.
constexpr double kSteps[] = {0x1p-8, 0x1p-11, 0x1p-14, 0x1p-17, 0x1p-20};
// With scans, whose gated norms have such rows, larger steps accuse nothing.
constexpr double kSmallWithScans = 0x1p-14;
constexpr double kTolerance = 0.05;  // A part of what the loss changes by.
constexpr double kStraight = 0.02;  // How far two steps may differ, where nothing is bent any more.
constexpr double kLossRounding = 0x1p-20;  // A part of a sum of token losses.
constexpr double kLeastOverRounding = 50;  // A change that is smaller says nothing.
constexpr std::size_t kMostOfADump = 256;
// A norm of few elements leaps where all are near 0: of one element it is little but its sign.
constexpr std::int64_t kLeastOfANorm = 8;

using Values = std::vector<float>;

// The losses of the first step, with the loss scale.
double loss_of(EngineCase& one, const RunRequest& request) {
  std::vector<TensorId> ids;
  for (std::int64_t g = 0; g < std::ssize(one.feed().training(0)); ++g)
    ids.push_back({.kind = "token_loss", .name = "token_loss", .at = {}, .microbatch = g});
  double sum = 0;
  for (std::size_t first = 0; first < ids.size(); first += kMostOfADump) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kMostOfADump, ids.size() - first));
    for (const auto& [id, tensor] : one.dump(request, {begin, begin + count}).tensors) {
      if (tensor.dtype != "F32") throw NotApplicable("token losses are not in fp32");
      for (const float loss : wire::values_of<float>(tensor)) sum += loss;
    }
  }
  return sum * at(one.feed().loss_scale, 0);
}

double length_of(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// A direction in which one parameter moves: along its gradient, where all of it counts, or with
// signs by chance, where what a gradient lacks counts too.
enum class Along : std::uint8_t { gradient, signs };

struct Moved {
  Values up, down;
  double change = 0;  // That the gradient makes of the loss between the two.
  double scale = 0;   // How large such a change is, whatever its sign.
};

Moved moved(const Values& weight, const Values& gradient, double part, Along along,
            std::int64_t parameter) {
  const double step = part * std::max(length_of(weight), 1e-3), norm = length_of(gradient);
  const double each = 1 / std::sqrt(static_cast<double>(weight.size()));
  Moved made;
  made.scale = 2 * step * norm * (along == Along::gradient ? 1 : each);
  for (std::int64_t i = 0; i < std::ssize(weight); ++i) {
    const bool minus = (draw(1, Purpose::token, {.step = -2, .microbatch = parameter}, i) & 1) != 0;
    const double unit = along == Along::gradient ? at(gradient, i) / norm : (minus ? -each : each);
    made.up.push_back(static_cast<float>(at(weight, i) + step * unit));
    made.down.push_back(static_cast<float>(at(weight, i) - step * unit));
    made.change += at(gradient, i) * (static_cast<double>(made.up.back()) - made.down.back());
  }
  return made;
}

RunRequest with_weight(const EngineCase& one, const std::string& name, const Values& values) {
  NamedTensors weights = *one.feed().weights;
  for (auto& [other, tensor] : weights) {
    if (other == name) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  }
  RunRequest request = one.asked();
  request.feed.weights = std::make_shared<const NamedTensors>(std::move(weights));
  request.what = "the run with another " + name;
  return request;
}

struct Known {
  std::map<std::string, Values> gradients;
  double loss = 0;
};

Known known_of(EngineCase& one) {
  Known known;
  std::vector<TensorId> ids;
  for (const TensorId& id : one.base().order) {
    if (id.kind == "gradient" && id.at == StepPlace{} && one.base().tensors.at(id).nonzero > 0)
      ids.push_back(id);
  }
  for (std::size_t first = 0; first < ids.size(); first += kMostOfADump) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kMostOfADump, ids.size() - first));
    for (const auto& [id, tensor] : one.dump(one.asked(), {begin, begin + count}).tensors) {
      if (tensor.dtype == "F32") known.gradients[id.name] = wire::values_of<float>(tensor);
    }
  }
  known.loss = loss_of(one, one.asked());
  return known;
}

// False where rounding hides the change, or the loss bends too much.
bool expect_derivative(EngineCase& one, const Known& known, const std::string& name,
                       const Values& weight, Along along, std::int64_t parameter) {
  const double rounding = kLossRounding * std::abs(known.loss);
  std::optional<double> before;  // What the loss changed by at the last step, for a scale of 1.
  std::optional<Violated> accused;
  const bool scans = one.scenario().model.pattern.find('M') != std::string::npos;
  for (const double part : kSteps) {
    const Moved made = moved(weight, known.gradients.at(name), part, along, parameter);
    if (made.scale < kLeastOverRounding * rounding) break;
    const double change = loss_of(one, with_weight(one, name, made.up)) -
                          loss_of(one, with_weight(one, name, made.down));
    if (std::abs(change - made.change) <= kTolerance * made.scale) return true;
    const double now = change / made.scale;
    const bool straight = before && std::abs(now - *before) <= kStraight;
    before = now;
    accused.reset();
    if (!straight || (scans && part > kSmallWithScans)) continue;
    const TensorId id{.kind = "gradient", .name = name, .at = {}};
    accused = Violated{.reason = id.text() + " makes " + std::to_string(made.change) +
                                 " of a change of the weight " +
                                 (along == Along::gradient ? "along it" : "by chance") +
                                 ", and the loss changes by " + std::to_string(change)};
  }
  if (accused) throw *accused;
  return false;
}

}  // namespace

std::string has_derivative(const EngineCase& one) {
  if (!one.hello().weights_by_name) return "the engine does not begin with the feed's weights";
  if (!one.honours("feed.loss_scale")) return "the loss scale is not honoured";
  if (!one.hello().observes_kind("gradient") || !one.hello().observes_kind("token_loss"))
    return "gradients or token losses are not observed";
  if (one.scenario().numerics.front() != Numerics::fp32) return "only fp32 is fine enough";
  const Scenario::Model& model = one.scenario().model;
  const bool scans = model.pattern.find('M') != std::string::npos;
  const std::int64_t of_a_group = model.mamba.d_inner / model.mamba.groups;
  if (model.hidden < kLeastOfANorm || (scans && of_a_group < kLeastOfANorm))
    return "norms of few elements leap";
  return why_documents_mix(one).empty() ? "" : "experts are chosen in leaps";
}

void derivative(EngineCase& one, const Choices&) {
  const Known known = known_of(one);
  bool any = false;
  std::int64_t parameter = 0;
  for (const auto& [name, tensor] : *one.feed().weights) {
    ++parameter;
    if (!known.gradients.contains(name)) continue;
    const Values weight = wire::values_of<float>(tensor);
    for (const Along along : {Along::gradient, Along::signs})
      any = expect_derivative(one, known, name, weight, along, parameter) || any;
  }
  if (!any) throw NotApplicable("no gradient is large enough");
}

}  // namespace lockstep::foreign
