#include "oracle/oracle.h"

#include <algorithm>
#include <stdexcept>

#include "oracle/model/digest.h"
#include "oracle/model/expert_bias.h"
#include "oracle/model/initialize.h"
#include "oracle/model/optimizer.h"
#include "oracle/model/reference_model.h"

namespace lockstep::oracle {
namespace {

using Values = std::vector<std::vector<float>>;

std::vector<Parameter> initial_parameters(const Scenario& scenario, const Layout& layout,
                                          Mutant mutant) {
  std::vector<Parameter> parameters;
  const auto layers = static_cast<std::int64_t>(scenario.model.pattern.size());
  for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
    const ParameterLayout& from = layout.parameters[p];
    Parameter to{from.name, from.layer, from.rows, from.cols, from.is_vector, {}, {}, {}, {}};
    to.weight =
        initial_weight(from, static_cast<std::uint32_t>(p), layers, scenario.training.seed, mutant);
    to.gradient.assign(to.weight.size(), 0.0f);
    to.m = to.v = to.gradient;
    parameters.push_back(std::move(to));
  }
  return parameters;
}

// One row. Its numbers of rows are below 2^24, so that float holds them exactly.
Tensor row_of(const char* name, const std::vector<std::int64_t>& numbers) {
  Tensor tensor{name, -1, 1, std::ssize(numbers), {}};
  for (const std::int64_t number : numbers) tensor.values.push_back(static_cast<float>(number));
  return tensor;
}

std::vector<Tensor> tensors(const Boundaries& pack, Saved<float>& saved) {
  std::vector<Tensor> list{row_of("pack.cu_seqlens", pack.cu_seqlens),
                           row_of("pack.cu_seqlens_padded", pack.cu_seqlens_padded)};
  const int layers = static_cast<int>(saved.last()) - 1;
  for (int place = 0; place <= layers + 1; ++place) {
    const bool inside = place > 0 && place <= layers;
    const std::string prefix = inside ? "layers." + std::to_string(place - 1) + "." : "";
    for (NamedMatrix<float>& entry : saved.places()[place]) {
      Matrix<float>& matrix = entry.matrix;
      list.push_back({prefix + entry.name, inside ? place - 1 : -1, matrix.rows, matrix.cols,
                      std::move(matrix.values)});
    }
  }
  return list;
}

// What the metadata of a pack must hold, named like Written.
std::vector<Tensor> tables(const Boundaries& boundaries, const PackedBatch& pack) {
  std::vector<std::int64_t> position(pack.rows), number(pack.rows);
  for (const Piece& document : pack.documents) {
    for (std::int64_t i = 0; i < document.rows; ++i) {
      position[document.first + i] = i;
      number[document.first + i] = document.number;
    }
  }
  return {row_of("pack_metadata.cu_seqlens", boundaries.cu_seqlens),
          row_of("pack_metadata.cu_seqlens_padded", boundaries.cu_seqlens_padded),
          row_of("pack_metadata.row_position", position),
          row_of("pack_metadata.row_number", number)};
}

float inverse_targets(std::int64_t targets) {
  return div(1.0f, static_cast<float>(targets == 0 ? 1 : targets));
}

std::int64_t unmasked(const PackedBatch& pack) {
  std::int64_t count = 0;
  for (const std::int32_t target : pack.targets) count += target >= 0 ? 1 : 0;
  return count;
}

void add_to(std::vector<float>& sum, const std::vector<float>& term) {
  for (std::size_t e = 0; e < sum.size(); ++e) sum[e] = add(sum[e], term[e]);
}

}  // namespace

struct Oracle::State {
  Scenario scenario;
  Options options;
  Mutant mutant;
  Layout layout;
  RopeTable<float> rope;
  std::vector<Parameter> parameters;
  Values expert_bias;
  AdamW adam;
  std::int64_t steps_done = 0;
  Fp8Operands operands;
  std::vector<Fp8Scaling> scaling;  // By operand, with the recipe `delayed`.

  State(const Scenario& s, const Options& o)
      : scenario(s),
        options(o),
        mutant(o.mutation),
        layout(make_layout(s.model)),
        rope(make_rope_table<float>(s.data.pack_length, s.model.attention.head_dim,
                                    s.model.attention.rope_base)),
        parameters(initial_parameters(s, layout, mutant)),
        expert_bias(no_expert_bias<float>(s.model)),
        adam(s.training.optimizer),
        operands(s.model) {
    if (is_delayed()) scaling.assign(operands.size(), Fp8Scaling(s.fp8.history));
  }

  bool is_delayed() const {
    return options.numerics == Numerics::fp8 && scenario.fp8.recipe == Fp8Recipe::delayed;
  }
  // Before the first step has ended there is no exponent of an earlier step.
  const std::vector<Fp8Scaling>* earlier_exponents() const {
    return is_delayed() && steps_done > 0 ? &scaling : nullptr;
  }

  // Returns the weights as the ops read them: those with a bf16 copy are rounded in bf16 numerics.
  Values weights() const {
    Values values;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      values.push_back(parameters[p].weight);
      const ParameterLayout& from = layout.parameters[p];
      const bool copied = from.has_copy() ||
                          (from.start == Start::router && mutant("moe-router-reads-the-bf16-copy"));
      if (options.numerics == Numerics::fp32 || !copied) continue;
      store<Bf16>(values.back().data(), static_cast<std::int64_t>(values.back().size()));
    }
    return values;
  }

  float inverse_for(const PackedBatch& pack, std::int64_t targets) const {
    if (mutant("loss-counts-every-row")) targets = pack.rows;
    if (mutant("loss-normalises-by-the-microbatch")) targets = unmasked(pack);
    return inverse_targets(targets);
  }

  // Runs microbatch `number` of a step or of an evaluation.
  MicrobatchResult run(std::int64_t step, const StepData& data, std::int64_t number,
                       const Values& weights, bool train) const {
    const Microbatch& microbatch = data.microbatches[number];
    const PackedBatch pack = make_pack(scenario, microbatch, mutant);
    Saved<float> saved(scenario.model.pattern.size());
    MicrobatchResult result;
    result.gradients.resize(train ? parameters.size() : 0);
    const DropoutKey dropout{train ? scenario.model.dropout.value() : 0.0, scenario.training.seed,
                             step};
    const float inverse = inverse_for(pack, data.targets);
    const float inv_m = div(1.0f, static_cast<float>(data.microbatches.size()));
    const std::vector<Fp8Scaling>* const exponents = earlier_exponents();
    Fp8Pass fp8{operands, exponents, train || exponents == nullptr,
                options.keep_activations ? &result.left_by_backward : nullptr};
    const auto walk_as = [&]<class Precision>(Precision) {
      ReferenceModel<Precision> walk(
          {scenario.model, layout, rope, pack, weights, expert_bias, inv_m, result.gradients,
           result.experts, saved, mutant, Precision::kFp8 ? &fp8 : nullptr,
           options.keep_written ? &result.written : nullptr},
          dropout);
      result.loss = walk.forward(inverse, train);
      if (train) walk.backward();
    };
    if (options.keep_written) result.written = tables(boundaries_of(scenario, microbatch), pack);
    if (options.numerics == Numerics::fp32) walk_as(Fp32());
    if (options.numerics == Numerics::bf16) walk_as(Bf16());
    if (options.numerics == Numerics::fp8) walk_as(Fp8());
    result.amaxes = std::move(fp8.amaxes);
    result.fp8_failure = std::move(fp8.failure);
    if (options.keep_activations)
      result.activations = tensors(boundaries_of(scenario, microbatch), saved);
    return result;
  }

  // Moves the biases so that experts that few rows of the step chose are chosen more often.
  void update_biases(const StepResult& result) {
    for (std::size_t layer = 0; layer < expert_bias.size(); ++layer) {
      if (expert_bias[layer].empty()) continue;
      std::vector<std::int64_t> chosen(expert_bias[layer].size());
      for (const MicrobatchResult& microbatch : result.microbatches) {
        if (mutant("moe-bias-counts-the-last-microbatch"))
          std::fill(chosen.begin(), chosen.end(), 0);
        for (const ExpertStatistics<float>& entry : microbatch.experts) {
          if (entry.layer != static_cast<int>(layer)) continue;
          for (std::size_t e = 0; e < chosen.size(); ++e) {
            chosen[e] +=
                entry.chosen[e] - (mutant("moe-bias-counts-after-dropping") ? entry.dropped[e] : 0);
          }
        }
      }
      update_expert_bias(chosen, expert_bias[layer], mutant);
    }
  }

  // The roll of the recipe `delayed`, behind the last backward pass of a step.
  void roll(std::int64_t step, StepResult& result) {
    const Scenario::Fp8& fp8 = scenario.fp8;
    const DelayedRecipe recipe{fp8.algorithm == Fp8Algorithm::most_recent,
                               static_cast<int>(fp8.margin)};
    for (std::size_t operand = 0; operand < scaling.size(); ++operand) {
      for (const MicrobatchResult& microbatch : result.microbatches)
        scaling[operand].pending = std::max(scaling[operand].pending, microbatch.amaxes[operand]);
      scaling[operand].roll(step, recipe, operands.type(operand));
      // The experts of a word have rows of one tensor.
      const std::string name = operands.name(operand) + "_history";
      if (result.histories.empty() || result.histories.back().name != name) {
        result.histories.push_back(
            {name, operands.layer(operand), 0, std::ssize(scaling[operand].history), {}});
      }
      Tensor& history = result.histories.back();
      ++history.rows;
      for (const std::uint32_t amax : scaling[operand].history)
        history.values.push_back(from_bits(amax));
    }
  }

  // Adds to the left folds of the sharding strategy: `sums` has one per rank, or one for all.
  void accumulate(std::int64_t number, const Values& gradients, std::vector<Values>& sums) const {
    Values& sum = sums[number % sums.size()];
    for (std::size_t p = 0; p < sum.size(); ++p) {
      if (mutant("accumulation-keeps-the-last-microbatch"))
        std::fill(sum[p].begin(), sum[p].end(), 0.0f);
      add_to(sum[p], gradients[p]);
    }
  }
  std::vector<Values> empty_sums() const {
    const Sharding strategy = scenario.fsdp.strategy;
    const bool per_rank = strategy == Sharding::no_shard || strategy == Sharding::optim;
    Values zero;
    for (const Parameter& parameter : parameters) zero.emplace_back(parameter.weight.size(), 0.0f);
    return std::vector<Values>(per_rank ? scenario.parallel.data : 1, zero);
  }
  void total_gradients(std::vector<Values>& sums) {
    for (std::size_t r = 1; r < sums.size(); ++r) {
      for (std::size_t p = 0; p < parameters.size(); ++p) add_to(sums[0][p], sums[r][p]);
    }
    for (std::size_t p = 0; p < parameters.size(); ++p)
      parameters[p].gradient = std::move(sums[0][p]);
  }
};

Oracle::Oracle(const Scenario& scenario, const Options& options)
    : state_(std::make_unique<State>(scenario, options)) {}
Oracle::~Oracle() = default;

StepResult Oracle::step(std::int64_t step, const StepData& data) {
  State& s = *state_;
  if (step != s.steps_done) throw std::invalid_argument("the steps of an oracle come in order");
  const Values weights = s.weights();
  const auto count = static_cast<std::int64_t>(data.microbatches.size());
  StepResult result;
  result.microbatches.resize(count);
  std::vector<Values> sums = s.empty_sums();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t m =
        s.mutant("accumulation-takes-microbatches-downwards") ? count - 1 - k : k;
    MicrobatchResult& microbatch = result.microbatches[m] = s.run(step, data, m, weights, true);
    s.accumulate(m, microbatch.gradients, sums);
    result.loss = add(result.loss, microbatch.loss);
    if (!s.options.keep_gradients) microbatch.gradients.clear();
  }
  s.total_gradients(sums);
  s.roll(step, result);
  result.norm = gradient_norm(s.parameters, s.mutant);
  result.clip = clip_factor(s.scenario.training.optimizer.clip, result.norm, s.mutant);
  const std::int64_t t = step + (s.mutant("adam-counts-steps-from-zero") ? 0 : 1);
  result.learning_rate = learning_rate(s.scenario.training.optimizer, step + 1, s.mutant);
  if (t > 0) s.adam.advance(1);
  for (Parameter& parameter : s.parameters)
    s.adam.update(parameter, result.clip, result.learning_rate, s.mutant);
  s.update_biases(result);
  ++s.steps_done;
  return result;
}

StepResult Oracle::evaluate(std::int64_t step, const StepData& data) const {
  const Values weights = state_->weights();
  StepResult result;
  for (std::size_t m = 0; m < data.microbatches.size(); ++m) {
    result.microbatches.push_back(
        state_->run(step, data, static_cast<std::int64_t>(m), weights, false));
    result.loss = add(result.loss, result.microbatches.back().loss);
  }
  return result;
}

const std::vector<Parameter>& Oracle::parameters() const { return state_->parameters; }

std::string Oracle::weight_digest() const {
  Digest digest;
  for (std::size_t p = 0; p < state_->parameters.size(); ++p)
    digest.take(0, p, state_->parameters[p].weight);
  return digest.text();
}

std::string Oracle::scaling_digest() const {
  if (state_->scaling.empty()) return "";
  Digest digest;
  for (std::size_t operand = 0; operand < state_->scaling.size(); ++operand) {
    const Fp8Scaling& scaling = state_->scaling[operand];
    std::vector<float> words;
    for (const std::uint32_t amax : scaling.history) words.push_back(from_bits(amax));
    words.push_back(from_bits(static_cast<std::uint32_t>(scaling.exponent)));
    digest.take(5, operand, words);
  }
  return digest.text();
}

const std::vector<std::vector<float>>& Oracle::expert_bias() const { return state_->expert_bias; }

void Oracle::restore(std::vector<Parameter> parameters, std::int64_t steps_done,
                     Values expert_bias) {
  state_->parameters = std::move(parameters);
  state_->expert_bias =
      expert_bias.empty() ? no_expert_bias<float>(state_->scenario.model) : std::move(expert_bias);
  state_->adam = AdamW(state_->scenario.training.optimizer);
  state_->adam.advance(steps_done);
  state_->steps_done = steps_done;
}

std::vector<std::string> Oracle::mutations() {
  return {std::begin(kMutations), std::end(kMutations)};
}

}  // namespace lockstep::oracle
