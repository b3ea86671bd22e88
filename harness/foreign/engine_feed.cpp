#include "harness/foreign/engine_feed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/parameters/parameter_list.h"
#include "engine/train/learning_rate.h"
#include "kernels/core/at.h"
#include "scenarios/documents/random.h"

namespace lockstep::foreign {
namespace {

constexpr double kEmbeddingDeviation = 0.5;
constexpr double kMatrixDeviation = 0.3;  // With 32 columns; it falls with their square root.
constexpr double kVectorDeviation = 0.1;

template <class T>
wire::TypedTensor tensor_of(const char* dtype, std::vector<std::int64_t> shape,
                            const std::vector<T>& values) {
  wire::TypedTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// Almost normal, mean 0 and deviation 1: the sum of four uniform numbers, so that every machine
// gets the same bits.
double almost_normal(std::int64_t seed, std::int64_t parameter, std::int64_t element) {
  double sum = -2;
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::uint32_t word =
        draw(seed, Purpose::token, {.step = -1, .microbatch = parameter}, 2 * element + i);
    sum += ((word >> 16) + 0.5) / 65536 + ((word & 0xFFFF) + 0.5) / 65536;
  }
  return sum * std::sqrt(3.0);
}

double deviation_of(const ParameterSpec& spec) {
  if (spec.name == "embedding.weight") return kEmbeddingDeviation;
  if (spec.is_vector) return kVectorDeviation;
  return kMatrixDeviation / std::sqrt(static_cast<double>(spec.cols) / 32);
}

// Weights that are large enough for a small leak to change the bits of a loss.
NamedTensors weights_of(const Scenario& scenario) {
  NamedTensors weights;
  for (const ParameterSpec& spec : ParameterList(scenario.model).specs) {
    const double mean = spec.name.ends_with("gain") ? 1 : 0, deviation = deviation_of(spec);
    std::vector<float> values;
    for (std::int64_t i = 0; i < spec.rows * spec.cols; ++i) {
      const double normal = almost_normal(scenario.training.seed, spec.index, i);
      values.push_back(static_cast<float>(mean + deviation * normal));
    }
    const std::vector<std::int64_t> shape =
        spec.is_vector ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols};
    weights.emplace_back(spec.name, tensor_of("F32", shape, values));
  }
  if (!scenario.model.moe.expert_bias) return weights;
  for (std::int64_t i = 0; i < std::ssize(scenario.model.pattern); ++i) {
    if (at(scenario.model.pattern, i) != 'E') continue;
    const std::vector<float> zeros(scenario.model.moe.experts);
    weights.emplace_back("layers." + std::to_string(i) + ".router.bias",
                         tensor_of("F32", {scenario.model.moe.experts}, zeros));
  }
  return weights;
}

// The largest power of two that is not above 1 / targets: scaling by it rounds nothing.
float loss_scale_of(std::int64_t targets) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(targets, 1));
  return std::ldexp(1.0f, -static_cast<int>(std::bit_width(count - 1)));
}

template <class Edit>
EngineFeed edited(EngineFeed feed, const Documents& chosen, bool edit_chosen, const Edit& edit) {
  for (auto& [place, microbatches] : feed.packs) {
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      std::vector<Document>& documents = at(microbatches, g).documents;
      for (std::int64_t i = 0; i < std::ssize(documents); ++i) {
        if (chosen({place, g, i}) == edit_chosen) edit(at(documents, i));
      }
    }
  }
  return feed;
}

}  // namespace

const std::vector<Microbatch>& EngineFeed::training(std::int64_t step) const {
  return packs.at({.evaluation = false, .step = step});
}

EngineFeed make_feed(const Scenario& scenario) {
  EngineFeed feed;
  feed.vocab = scenario.model.vocab;
  feed.steps = scenario.training.steps;
  const std::unique_ptr<DataSource> data = open_data(scenario);
  const std::int64_t every = scenario.training.eval_every;
  for (std::int64_t step = 0; step < feed.steps; ++step) {
    StepData training = data->training(step);
    feed.loss_scale.push_back(loss_scale_of(training.targets));
    feed.learning_rate.push_back(learning_rate(scenario.training.optimizer, step + 1));
    feed.packs[{false, step}] = std::move(training.microbatches);
    if (every > 0 && (step + 1) % every == 0)
      feed.packs[{true, step}] = data->evaluation(step).microbatches;
  }
  feed.weights = std::make_shared<const NamedTensors>(weights_of(scenario));
  return feed;
}

EngineFeed with_evaluations(EngineFeed training, const EngineFeed& evaluated) {
  std::erase_if(training.packs, [](const auto& pack) { return pack.first.evaluation; });
  for (const auto& [place, microbatches] : evaluated.packs) {
    if (place.evaluation) training.packs[place] = microbatches;
  }
  return training;
}

EngineFeed frozen(EngineFeed feed) {
  std::fill(feed.learning_rate.begin(), feed.learning_rate.end(), 0.0f);
  return feed;
}

EngineFeed with_voice(EngineFeed feed, const Documents& speaking) {
  return edited(std::move(feed), speaking, false, [](Document& document) {
    std::fill(document.targets.begin(), document.targets.end(), -1);
  });
}

EngineFeed with_others_replaced(EngineFeed feed, const Documents& kept) {
  const std::int64_t vocab = feed.vocab;
  return edited(std::move(feed), kept, false, [vocab](Document& document) {
    for (std::int64_t i = 0; i < std::ssize(document.tokens); ++i) {
      std::int32_t& token = at(document.tokens, i);
      token =
          static_cast<std::int32_t>((token + 1 + i % std::max<std::int64_t>(vocab - 1, 1)) % vocab);
    }
    for (std::int64_t i = 0; i + 1 < std::ssize(document.tokens); ++i) {
      if (at(document.targets, i) >= 0) at(document.targets, i) = at(document.tokens, i + 1);
    }
  });
}

EngineFeed with_microbatches_in(const std::vector<std::int64_t>& order, EngineFeed feed) {
  for (auto& [place, microbatches] : feed.packs) {
    if (place.evaluation) continue;
    std::vector<Microbatch> moved;
    for (const std::int64_t g : order) moved.push_back(at(microbatches, g));
    microbatches = std::move(moved);
  }
  return feed;
}

EngineFeed with_documents_reversed(EngineFeed feed) {
  for (auto& [place, microbatches] : feed.packs) {
    for (Microbatch& one : microbatches) std::reverse(one.documents.begin(), one.documents.end());
  }
  return feed;
}

Documents half_of(const EngineFeed& feed, Half half) {
  std::map<std::pair<StepPlace, std::int64_t>, std::vector<int>> halves;
  for (const auto& [place, microbatches] : feed.packs) {
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      int number = 0;
      for (const Document& document : at(microbatches, g).documents)
        halves[{place, g}].push_back(document.tokens.empty() ? -1 : number++ % 2);
    }
  }
  return [halves, wanted = half == Half::odd ? 1 : 0](const DocumentPlace& place) {
    return at(halves.at({place.at, place.microbatch}), place.document) == wanted;
  };
}

bool has_target(const EngineFeed& feed, const Documents& documents) {
  for (const auto& [place, microbatches] : feed.packs) {
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      const std::vector<Document>& list = at(microbatches, g).documents;
      for (std::int64_t i = 0; i < std::ssize(list); ++i) {
        const std::vector<std::int32_t>& targets = at(list, i).targets;
        const bool any = std::any_of(targets.begin(), targets.end(),
                                     [](std::int32_t target) { return target >= 0; });
        if (any && documents({place, g, i})) return true;
      }
    }
  }
  return false;
}

bool has_two_halves(const EngineFeed& feed) {
  return std::any_of(feed.packs.begin(), feed.packs.end(), [](const auto& step) {
    return std::any_of(step.second.begin(), step.second.end(), [](const Microbatch& one) {
      return std::count_if(one.documents.begin(), one.documents.end(),
                           [](const Document& document) { return !document.tokens.empty(); }) > 1;
    });
  });
}

void write_feed(const EngineFeed& feed, const std::string& folder,
                const std::string& weights_file) {
  std::vector<std::int64_t> packs, documents;
  std::vector<std::int32_t> tokens, targets;
  for (const auto& [place, microbatches] : feed.packs) {
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      const std::vector<Document>& list = at(microbatches, g).documents;
      const std::int64_t first = std::ssize(documents) / 3;
      packs.insert(packs.end(), {place.evaluation, place.step, g, first, std::ssize(list)});
      for (const Document& one : list) {
        documents.insert(documents.end(), {one.number, std::ssize(tokens), std::ssize(one.tokens)});
        tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
        targets.insert(targets.end(), one.targets.begin(), one.targets.end());
      }
    }
  }
  wire::write_tensor_file(
      folder + "/data.safetensors",
      {{"packs", tensor_of("I64", {std::ssize(packs) / 5, 5}, packs)},
       {"documents", tensor_of("I64", {std::ssize(documents) / 3, 3}, documents)},
       {"tokens", tensor_of("I32", {std::ssize(tokens)}, tokens)},
       {"targets", tensor_of("I32", {std::ssize(targets)}, targets)},
       {"loss_scale", tensor_of("F32", {std::ssize(feed.loss_scale)}, feed.loss_scale)},
       {"learning_rate", tensor_of("F32", {std::ssize(feed.learning_rate)}, feed.learning_rate)},
       {"padding_token", tensor_of("I32", {1}, std::vector{feed.padding_token})}});
  if (!std::filesystem::exists(weights_file)) wire::write_tensor_file(weights_file, *feed.weights);
  std::filesystem::create_hard_link(weights_file, folder + "/weights.safetensors");
}

}  // namespace lockstep::foreign
