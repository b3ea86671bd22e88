#include "harness/foreign/double_reference.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/core/at.h"
#include "oracle/oracle.h"

namespace lockstep::foreign {
namespace {

// A choice of experts is sure where the keys of the last that is taken and the first that is not
// differ by so many times what nudging moves any key of the layer.
constexpr double kSureChoice = 4;

using Values = std::vector<double>;

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < std::ssize(a); ++i)
    sum += (at(a, i) - at(b, i)) * (at(a, i) - at(b, i));
  return std::sqrt(sum);
}

double largest_distance(const Values& a, const Values& b) {
  double most = 0;
  for (std::int64_t i = 0; i < std::ssize(a); ++i)
    most = std::max(most, std::abs(at(a, i) - at(b, i)));
  return most;
}

// The rows of documents, one behind the other.
Values rows_of_documents(const Scenario::Data& data, const Microbatch& microbatch,
                         const Values& values, std::int64_t columns) {
  Values rows;
  std::int64_t first = 0;
  for (const Document& one : microbatch.documents) {
    const std::int64_t count = std::ssize(one.tokens);
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * columns);
    rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(count * columns));
    first += slot_rows(count, data.gaps, data.align);
  }
  return rows;
}

// The rows of such a tensor are pairs of row and slot, as many as the choices make.
bool is_of_the_experts_buffer(const std::string& name) {
  constexpr const char* kEnds[] = {".dispatched", ".expert_fc1", ".moe_act", ".expert_out"};
  return std::ranges::any_of(kEnds, [&](const char* end) { return name.ends_with(end); });
}

// Length of the largest value of each row.
double length_of_largest(const ExpectedTensor& tensor) {
  double sum = 0;
  for (std::int64_t first = 0; first < std::ssize(tensor.values); first += tensor.columns) {
    double largest = 0;
    for (std::int64_t c = 0; c < tensor.columns; ++c)
      largest = std::max(largest, std::abs(at(tensor.values, first + c)));
    sum += largest * largest;
  }
  return std::sqrt(sum);
}

// The results of one pass over the microbatches of a step.
struct Pass {
  std::vector<ExpectedTensor> rows;  // Activations and token losses, in program order.
  std::vector<Values> gradients;     // Sums over the microbatches.
  Values terms;                      // Lengths of the microbatches' gradients, root of the squares.
};

class Reference {
 public:
  Reference(const EngineCase& one, std::int64_t step, const StepWeights& begin, double loss_scale)
      : scenario_(one.scenario()), packs_(one.feed().training(step)), step_(step) {
    pass_ = {.weights = begin.weights,
             .expert_bias = begin.expert_bias,
             .step = step,
             .loss_scale = loss_scale,
             .microbatches = std::ssize(packs_),
             .numerics = scenario_.numerics.front()};
  }

  ExpectedStep expected() {
    Pass base = pass(0);
    std::vector<ExpectedTensor> gradients = gradients_of(base);
    for (int seed = 1; seed <= kNudgedPasses; ++seed) {
      const Pass nudged = pass(seed);
      for (std::int64_t i = 0; i < std::ssize(base.rows); ++i)
        widen(at(base.rows, i), at(nudged.rows, i).values);
      for (std::int64_t p = 0; p < std::ssize(base.gradients); ++p)
        widen(at(gradients, p), at(nudged.gradients, p));
    }
    ExpectedStep step{.order = std::move(base.rows), .why_not = {}};
    step.order.insert(step.order.end(), std::make_move_iterator(gradients.rbegin()),
                      std::make_move_iterator(gradients.rend()));
    for (ExpectedTensor& one : step.order) one.moved = std::sqrt(one.moved / kNudgedPasses);
    step.why_not = why_choices_are_not_sure(step);
    return step;
  }

 private:
  static void widen(ExpectedTensor& one, const Values& nudged) {
    const double moved = distance(one.values, nudged);
    one.moved += moved * moved;
    one.largest = std::max(one.largest, largest_distance(one.values, nudged));
  }

  Pass pass(int seed) {
    pass_.nudge = static_cast<std::uint64_t>(seed);
    Pass made;
    for (std::int64_t g = 0; g < std::ssize(packs_); ++g) {
      pass_.number = static_cast<std::uint64_t>(g);
      oracle::DoubleResult result = oracle::run_in_double(scenario_, at(packs_, g), pass_);
      for (const oracle::DoubleTensor& tensor : result.activations) take_rows(tensor, g, made.rows);
      take_gradients(result.gradients, made);
    }
    return made;
  }

  void take_rows(const oracle::DoubleTensor& tensor, std::int64_t g,
                 std::vector<ExpectedTensor>& rows) const {
    const std::int64_t length = scenario_.data.pack_length;
    const bool by_row = tensor.rows == 1 && tensor.cols == length;  // One value for each row.
    if ((tensor.rows != length && !by_row) || is_of_the_experts_buffer(tensor.name)) return;
    const bool loss = tensor.name == "token_loss";
    ExpectedTensor one{.id = {.kind = loss ? "token_loss" : "activation",
                              .name = tensor.name,
                              .at = {false, step_},
                              .microbatch = g},
                       .columns = by_row ? 1 : tensor.cols};
    one.values = rows_of_documents(scenario_.data, at(packs_, g), tensor.values, one.columns);
    if (loss) one.terms = length_of_largest(rows.back());  // The logits, which come before.
    rows.push_back(std::move(one));
  }

  static void take_gradients(std::vector<Values>& gradients, Pass& made) {
    if (made.gradients.empty()) made.terms.assign(gradients.size(), 0.0);
    for (std::int64_t p = 0; p < std::ssize(gradients); ++p) {
      const Values& term = at(gradients, p);
      const double length = distance(term, Values(term.size()));
      at(made.terms, p) = std::hypot(at(made.terms, p), length);
    }
    if (made.gradients.empty()) {
      made.gradients = std::move(gradients);
      return;
    }
    for (std::int64_t p = 0; p < std::ssize(gradients); ++p) {
      Values& sum = at(made.gradients, p);
      for (std::int64_t i = 0; i < std::ssize(sum); ++i) at(sum, i) += at(at(gradients, p), i);
    }
  }

  std::vector<ExpectedTensor> gradients_of(const Pass& base) const {
    const std::vector<std::string> names = oracle::parameter_names(scenario_);
    std::vector<ExpectedTensor> list;
    for (std::int64_t p = 0; p < std::ssize(base.gradients); ++p) {
      list.push_back({.id = {.kind = "gradient", .name = at(names, p), .at = {false, step_}},
                      .values = at(base.gradients, p),
                      .terms = at(base.terms, p)});
    }
    return list;
  }

  // A choice is sure where the last expert that is chosen and the first that is not are far apart.
  std::string why_choices_are_not_sure(const ExpectedStep& step) const {
    const std::int64_t slots = scenario_.model.moe.top_k;
    for (const ExpectedTensor& one : step.order) {
      if (!one.id.name.ends_with("router.scores") || one.columns <= slots) continue;
      const std::int64_t layer = std::stoll(one.id.name.substr(std::string("layers.").size()));
      const Values bias = pass_.expert_bias.empty() ? Values() : at(pass_.expert_bias, layer);
      for (std::int64_t row = 0; row * one.columns < std::ssize(one.values); ++row) {
        Values keys(one.values.begin() + static_cast<std::ptrdiff_t>(row * one.columns),
                    one.values.begin() + static_cast<std::ptrdiff_t>((row + 1) * one.columns));
        for (std::int64_t e = 0; e < std::ssize(bias); ++e) at(keys, e) += at(bias, e);
        std::ranges::sort(keys, std::greater<>());
        if (at(keys, slots - 1) - at(keys, slots) <= kSureChoice * one.largest)
          return "roundings decide between two experts";
      }
    }
    return "";
  }

  const Scenario& scenario_;
  const std::vector<Microbatch>& packs_;
  std::int64_t step_;
  oracle::DoublePass pass_;
};

}  // namespace

double ExpectedTensor::length() const { return distance(values, Values(values.size())); }

ExpectedStep expected_step(const EngineCase& one, std::int64_t step, const StepWeights& begin,
                           double loss_scale) {
  return Reference(one, step, begin, loss_scale).expected();
}

}  // namespace lockstep::foreign
