#include "harness/wire/feed.h"

#include <algorithm>
#include <limits>

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
    for (const Document& document : microbatch.documents) {
      const bool known =
          std::all_of(document.tokens.begin(), document.tokens.end(), is_word) &&
          std::all_of(document.targets.begin(), document.targets.end(),
                      [&](std::int32_t target) { return target == -1 || is_word(target); });
      if (!known) throw WireError("a token or target is outside of the vocabulary");
    }
  }
}

// The tables of a feed, row by row. No document is part of two packs and no token of two documents,
// so that what is made of a file is not larger than the file says.
class Packs {
 public:
  Packs(const Tensors& data, const Scenario& scenario)
      : scenario_(scenario),
        packs_(tensor<std::int64_t>(data, "packs", "I64")),
        documents_(tensor<std::int64_t>(data, "documents", "I64")),
        tokens_(tensor<std::int32_t>(data, "tokens", "I32")),
        targets_(tensor<std::int32_t>(data, "targets", "I32")) {
    if (packs_.size() % 5 != 0 || documents_.size() % 3 != 0 || tokens_.size() != targets_.size())
      throw WireError("the feed's tables have other columns");
  }
  std::size_t size() const { return packs_.size() / 5; }
  std::int64_t phase(std::size_t row) const { return packs_[5 * row]; }
  std::int64_t step(std::size_t row) const { return packs_[5 * row + 1]; }
  std::int64_t number(std::size_t row) const { return packs_[5 * row + 2]; }

  Microbatch microbatch(std::size_t row) {
    const std::int64_t first = packs_[5 * row + 3], count = packs_[5 * row + 4];
    if (first != documents_taken_) throw WireError("the documents of a feed are not in order");
    require_inside(first, count, documents_.size() / 3, "documents");
    documents_taken_ += count;
    Microbatch microbatch;
    std::int64_t rows = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      microbatch.documents.push_back(document(3 * i));
      const std::int64_t length = std::ssize(microbatch.documents.back().tokens);
      rows += slot_rows(length, scenario_.data.gaps, scenario_.data.align);
      if (rows > scenario_.data.pack_length)
        throw WireError("the documents of a pack need more rows than it has");
    }
    return microbatch;
  }

 private:
  Document document(std::int64_t at) {
    const std::int64_t number = documents_[at], begin = documents_[at + 1],
                       length = documents_[at + 2];
    require_inside(begin, length, tokens_.size(), "tokens");
    tokens_taken_ += length;
    if (tokens_taken_ > std::ssize(tokens_)) throw WireError("a token is part of two documents");
    if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
      throw WireError("a document has a number that none can have");
    return {.number = static_cast<std::int32_t>(number),
            .tokens = {tokens_.begin() + begin, tokens_.begin() + begin + length},
            .targets = {targets_.begin() + begin, targets_.begin() + begin + length}};
  }

  const Scenario& scenario_;
  const std::vector<std::int64_t> packs_, documents_;
  const std::vector<std::int32_t> tokens_, targets_;
  std::int64_t documents_taken_ = 0, tokens_taken_ = 0;
};

}  // namespace

Feed::Feed(const std::string& folder, const Scenario& scenario) {
  read_packs(folder + "/data.safetensors", scenario);
  for (const auto& [name, weight] : read_tensor_file(folder + "/weights.safetensors")) {
    if (weight.dtype != "F32") throw WireError(name + " is not F32");
    weights_[name] = values_of<float>(weight);
  }
  require_complete(scenario);
}

void Feed::read_packs(const std::string& path, const Scenario& scenario) {
  const Tensors data = read_tensor_file(path);
  scalars_ = {tensor<float>(data, "loss_scale", "F32"),
              tensor<float>(data, "learning_rate", "F32")};
  Packs packs(data, scenario);
  for (std::size_t row = 0; row < packs.size(); ++row) {
    if (packs.phase(row) != 0 && packs.phase(row) != 1) throw WireError("a pack of no phase");
    StepData& step = steps_[{static_cast<Phase>(packs.phase(row)), packs.step(row)}];
    if (packs.number(row) != std::ssize(step.microbatches))
      throw WireError("the packs of a step are not in order");
    step.microbatches.push_back(packs.microbatch(row));
  }
  for (auto& [key, step] : steps_) step.targets = targets_of(step);
}

void Feed::require_complete(const Scenario& scenario) const {
  const std::int64_t steps = scenario.training.steps, every = scenario.training.eval_every;
  if (std::ssize(scalars_.loss_scale) < steps || std::ssize(scalars_.learning_rate) < steps)
    throw WireError("the feed has no loss scale or learning rate for each step");
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto require_packs = [&](Phase phase) {
      const StepData* const data = find(phase, step);
      if (data == nullptr || std::ssize(data->microbatches) != global_microbatches(scenario, step))
        throw WireError("the feed has other microbatches than the scenario");
    };
    require_packs(Phase::training);
    if (every > 0 && (step + 1) % every == 0) require_packs(Phase::evaluation);
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
