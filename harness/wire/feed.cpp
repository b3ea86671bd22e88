#include "harness/wire/feed.h"

#include <algorithm>

#include "harness/wire/tensor_file.h"
#include "scenarios/documents/layout.h"

namespace lockstep::wire {
namespace {

using Tensors = std::map<std::string, TypedTensor>;

template <class T>
std::vector<T> tensor(const Tensors& tensors, const std::string& name, const std::string& dtype) {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second.dtype != dtype)
    throw WireError("the feed has no " + name + " of " + dtype);
  return values_of<T>(found->second);
}

// Rows of a table whose columns count other rows: [first, first + count) of `size`.
void require_inside(std::int64_t first, std::int64_t count, std::size_t size, const char* what) {
  const auto most = static_cast<std::int64_t>(size);
  if (first < 0 || count < 0 || first > most || count > most - first)
    throw WireError(std::string("the feed names ") + what + " that it does not have");
}

std::int64_t targets_of(const StepData& step) {
  std::int64_t count = 0;
  for (const Microbatch& microbatch : step.microbatches) {
    for (const Document& document : microbatch.documents) {
      count += std::count_if(document.targets.begin(), document.targets.end(),
                             [](std::int32_t target) { return target >= 0; });
    }
  }
  return count;
}

void require_words(const StepData& step, const Scenario& scenario) {
  const auto is_word = [&](std::int32_t word) { return word >= 0 && word < scenario.model.vocab; };
  for (const Microbatch& microbatch : step.microbatches) {
    if (pack_rows(scenario.data, lengths_of(microbatch)) > scenario.data.pack_length)
      throw WireError("the documents of a pack need more rows than it has");
    for (const Document& document : microbatch.documents) {
      const bool known =
          std::all_of(document.tokens.begin(), document.tokens.end(), is_word) &&
          std::all_of(document.targets.begin(), document.targets.end(),
                      [&](std::int32_t target) { return target == -1 || is_word(target); });
      if (!known) throw WireError("a token or target is outside of the vocabulary");
    }
  }
}

}  // namespace

Feed::Feed(const std::string& folder, const Scenario& scenario) {
  read_packs(folder + "/data.safetensors");
  for (const auto& [name, weight] : read_tensor_file(folder + "/weights.safetensors")) {
    if (weight.dtype != "F32") throw WireError(name + " is not F32");
    weights_[name] = values_of<float>(weight);
  }
  require_complete(scenario);
}

void Feed::read_packs(const std::string& path) {
  const Tensors data = read_tensor_file(path);
  scalars_ = {tensor<float>(data, "loss_scale", "F32"),
              tensor<float>(data, "learning_rate", "F32")};
  const auto packs = tensor<std::int64_t>(data, "packs", "I64");
  const auto documents = tensor<std::int64_t>(data, "documents", "I64");
  const auto tokens = tensor<std::int32_t>(data, "tokens", "I32");
  const auto targets = tensor<std::int32_t>(data, "targets", "I32");
  if (packs.size() % 5 != 0 || documents.size() % 3 != 0 || tokens.size() != targets.size())
    throw WireError("the feed's tables have other columns");
  for (std::size_t row = 0; row < packs.size(); row += 5) {
    const std::int64_t first = packs[row + 3], count = packs[row + 4];
    if (packs[row] != 0 && packs[row] != 1) throw WireError("a pack of no phase");
    StepData& step = steps_[{static_cast<Phase>(packs[row]), packs[row + 1]}];
    if (packs[row + 2] != std::ssize(step.microbatches))
      throw WireError("the packs of a step are not in order");
    require_inside(first, count, documents.size() / 3, "documents");
    Microbatch microbatch;
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t begin = documents[3 * i + 1], length = documents[3 * i + 2];
      require_inside(begin, length, tokens.size(), "tokens");
      microbatch.documents.push_back(
          {.number = static_cast<std::int32_t>(documents[3 * i]),
           .tokens = {tokens.begin() + begin, tokens.begin() + begin + length},
           .targets = {targets.begin() + begin, targets.begin() + begin + length}});
    }
    step.microbatches.push_back(std::move(microbatch));
  }
  for (auto& [key, step] : steps_) step.targets = targets_of(step);
}

void Feed::require_complete(const Scenario& scenario) const {
  const std::int64_t steps = scenario.training.steps, every = scenario.training.eval_every;
  if (std::ssize(scalars_.loss_scale) < steps || std::ssize(scalars_.learning_rate) < steps)
    throw WireError("the feed has no loss scale or learning rate for each step");
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepData* const trained = find(Phase::training, step);
    if (trained == nullptr ||
        std::ssize(trained->microbatches) != global_microbatches(scenario, step))
      throw WireError("the feed has other microbatches than the scenario");
    const bool evaluates = every > 0 && (step + 1) % every == 0;
    if (evaluates && find(Phase::evaluation, step) == nullptr)
      throw WireError("the feed has no packs of an evaluation");
  }
  for (const auto& [key, step] : steps_) require_words(step, scenario);
}

const StepData* Feed::find(Phase phase, std::int64_t step) const {
  const auto found = steps_.find({phase, step});
  return found == steps_.end() ? nullptr : &found->second;
}

// The trainer asks for one step more than there are, ahead.
StepData Feed::training(std::int64_t step) const {
  const StepData* const data = find(Phase::training, step);
  if (data == nullptr) throw WireError("the feed has no step " + std::to_string(step));
  return *data;
}
StepData Feed::evaluation(std::int64_t step) const {
  const StepData* const data = find(Phase::evaluation, step);
  if (data == nullptr) throw WireError("no evaluation after step " + std::to_string(step));
  return *data;
}

}  // namespace lockstep::wire
