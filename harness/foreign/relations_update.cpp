// R16b: what the optimizer made of the engine's own gradients, and the loss of its own token
// losses, computed again in binary64.
#include <algorithm>
#include <cmath>

#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"

namespace lockstep::foreign {
namespace {

// An update is a dozen roundings to fp32, each of at most half of this, of terms that may cancel.
constexpr double kRounding = 64 * 0x1p-24;
constexpr double kLeast = 0x1p-130;  // Below the least normal number no part of a value is exact.
constexpr std::size_t kMostOfADump = 256;
constexpr double kLossRounding = 1e-4;  // A sum of fp32 terms of one sign, in any order.
constexpr const char* kKinds[] = {"gradient", "weight", "moment1", "moment2"};

using Values = std::vector<float>;

// One parameter before and after a step.
struct State {
  Values weight, moment1, moment2;
};

struct Step {
  double learning_rate = 0, clip = 1, decay = 0;
  double correction1 = 1, correction2 = 1;  // The moments begin at 0.
};

struct Wrong {
  const char* kind;
  std::int64_t element;
  double got, want;
};

bool is_near(double got, double want, double magnitude) {
  return std::abs(got - want) <= kRounding * magnitude + kLeast;
}

// AdamW, docs/arithmetic.md 2.13. Each part is computed from what the engine had before it.
std::optional<Wrong> wrong_update(const Scenario::Training::Optimizer& config, const Step& step,
                                  const Values& gradient, const State& before, const State& after) {
  for (std::int64_t i = 0; i < std::ssize(gradient); ++i) {
    const double g = at(gradient, i) * step.clip;
    const double m = at(before.moment1, i), v = at(before.moment2, i), w = at(before.weight, i);
    const double want_m = config.beta1 * m + (1 - config.beta1) * g;
    const double most_m = config.beta1 * std::abs(m) + (1 - config.beta1) * std::abs(g);
    if (!is_near(at(after.moment1, i), want_m, most_m))
      return Wrong{"moment1", i, at(after.moment1, i), want_m};
    const double want_v = config.beta2 * v + (1 - config.beta2) * g * g;
    if (!is_near(at(after.moment2, i), want_v, want_v))
      return Wrong{"moment2", i, at(after.moment2, i), want_v};
    const double new_m = at(after.moment1, i), new_v = at(after.moment2, i);
    const double step_size =
        new_m / step.correction1 / (std::sqrt(new_v / step.correction2) + config.eps);
    const double want_w = w - step.learning_rate * (step_size + step.decay * w);
    const double most_w =
        std::abs(w) + step.learning_rate * (std::abs(step_size) + step.decay * std::abs(w));
    if (!is_near(at(after.weight, i), want_w, most_w))
      return Wrong{"weight", i, at(after.weight, i), want_w};
  }
  return {};
}

// Values that the engine observed in training, of these kinds.
class Observed {
 public:
  Observed(EngineCase& one, const std::set<std::string>& kinds) {
    std::vector<TensorId> ids;
    for (const TensorId& id : one.base().order) {
      if (!id.at.evaluation && kinds.contains(id.kind)) ids.push_back(id);
    }
    for (std::size_t first = 0; first < ids.size(); first += kMostOfADump) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
      const auto count = std::min(kMostOfADump, ids.size() - first);
      for (const auto& [id, tensor] :
           one.dump(one.asked(), {begin, begin + static_cast<std::ptrdiff_t>(count)}).tensors) {
        if (tensor.dtype == "F32") values_[id] = wire::values_of<float>(tensor);
      }
    }
  }
  // Null where it was not observed in fp32.
  const Values* find(const char* kind, const std::string& name, std::int64_t step,
                     std::int64_t microbatch = -1) const {
    const auto found =
        values_.find({.kind = kind, .name = name, .at = {false, step}, .microbatch = microbatch});
    return found == values_.end() ? nullptr : &found->second;
  }
  // The norm of all gradients of a step.
  double norm(std::int64_t step) const {
    double sum = 0;
    for (const auto& [id, values] : values_) {
      if (id.kind != "gradient" || id.at.step != step) continue;
      for (const float value : values) sum += static_cast<double>(value) * value;
    }
    return std::sqrt(sum);
  }

 private:
  std::map<TensorId, Values> values_;
};

Step step_of(const EngineCase& one, const Observed& observed, std::int64_t step) {
  const Scenario::Training::Optimizer& config = one.scenario().training.optimizer;
  const double t = static_cast<double>(step + 1), norm = observed.norm(step);
  return {.learning_rate = at(one.feed().learning_rate, step),
          .clip = config.clip > 0 && norm > config.clip ? config.clip / norm : 1,
          .decay = config.weight_decay,
          .correction1 = 1 - std::pow(config.beta1, t),
          .correction2 = 1 - std::pow(config.beta2, t)};
}

// A clipped gradient is rounded once more than the norm of all elements can say.
bool is_near_the_limit(const EngineCase& one, const Observed& observed, std::int64_t step) {
  const double clip = one.scenario().training.optimizer.clip, norm = observed.norm(step);
  return clip > 0 && std::abs(norm - clip) <= 1e-4 * clip;
}

std::int64_t targets_of(const std::vector<Microbatch>& microbatches) {
  std::int64_t targets = 0;
  for (const Microbatch& pack : microbatches) {
    for (const Document& one : pack.documents)
      targets += std::ranges::count_if(one.targets, [](std::int32_t t) { return t >= 0; });
  }
  return targets;
}

// The loss of each step is the scaled sum of its token losses. False where it was not looked at.
bool expect_loss(EngineCase& one) {
  const bool observed_both =
      one.hello().observes_kind("token_loss") && one.hello().observes_kind("loss");
  if (!one.hello().loss_scaled || !observed_both) return false;
  const Observed observed(one, {"token_loss", "loss"});
  bool any = false;
  for (std::int64_t step = 0; step < one.feed().steps; ++step) {
    const std::vector<Microbatch>& packs = one.feed().training(step);
    double sum = 0;
    for (std::int64_t g = 0; g < std::ssize(packs); ++g) {
      const Values* const losses = observed.find("token_loss", "token_loss", step, g);
      if (losses == nullptr) return any;
      for (const float loss : *losses) sum += loss;
    }
    const Values* const told = observed.find("loss", "loss", step);
    if (told == nullptr) return any;
    const double scale =
        one.honours("feed.loss_scale")
            ? at(one.feed().loss_scale, step)
            : 1.0 / static_cast<double>(std::max<std::int64_t>(targets_of(packs), 1));
    const double want = scale * sum, got = told->front();
    any = true;
    if (std::abs(got - want) > kLossRounding * std::abs(want))
      throw Violated{.reason = "the loss of step " + std::to_string(step) + " is " +
                               std::to_string(got) + ", and the token losses make " +
                               std::to_string(want)};
  }
  return any;
}

bool has_states(const EngineCase& one) {
  return one.hello().weights_by_name && std::ranges::all_of(kKinds, [&](const char* kind) {
           return one.hello().observes_kind(kind);
         });
}

// False where nothing could be looked at.
bool expect_updates(EngineCase& one) {
  if (!has_states(one)) return false;
  const Observed observed(one, {std::begin(kKinds), std::end(kKinds)});
  const Scenario::Training::Optimizer& config = one.scenario().training.optimizer;
  bool any = false;
  for (const auto& [name, tensor] : *one.feed().weights) {
    State before{.weight = wire::values_of<float>(tensor),
                 .moment1 = Values(tensor.bytes.size() / sizeof(float)),
                 .moment2 = Values(tensor.bytes.size() / sizeof(float))};
    for (std::int64_t step = 0; step < one.feed().steps; ++step) {
      const Values* const gradient = observed.find("gradient", name, step);
      const Values* const weight = observed.find("weight", name, step);
      const Values* const moment1 = observed.find("moment1", name, step);
      const Values* const moment2 = observed.find("moment2", name, step);
      if (!gradient || !weight || !moment1 || !moment2) break;
      const State after{.weight = *weight, .moment1 = *moment1, .moment2 = *moment2};
      Step numbers = step_of(one, observed, step);
      if (tensor.shape.size() < 2) numbers.decay = 0;
      any = true;
      const std::optional<Wrong> wrong =
          is_near_the_limit(one, observed, step)
              ? std::nullopt
              : wrong_update(config, numbers, *gradient, before, after);
      if (wrong) {
        const TensorId id{.kind = wrong->kind, .name = name, .at = {false, step}};
        throw Violated{.reason = id.text() + ": element " + std::to_string(wrong->element) +
                                 " is " + std::to_string(wrong->got) + ", and AdamW makes " +
                                 std::to_string(wrong->want) +
                                 " of the gradient, moments and weight that the engine observed"};
      }
      before = after;
    }
  }
  return any;
}

}  // namespace

std::string has_optimizer(const EngineCase& one) {
  return one.hello().loss_scaled || has_states(one)
             ? ""
             : "the engine neither observes all of the optimizer's state nor claims loss_scaled";
}

void update(EngineCase& one, const Choices&) {
  const bool losses = expect_loss(one), updates = expect_updates(one);
  if (!losses && !updates) throw NotApplicable("gradients, weights, moments are not all in fp32");
}

}  // namespace lockstep::foreign
