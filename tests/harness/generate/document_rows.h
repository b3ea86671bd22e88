// The values that a run shows of each of its documents, wherever the documents lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/train/training_run.h"

namespace lockstep::test {

struct DocumentRows {
  using StepLocation = std::pair<std::int64_t, std::int32_t>;  // Step, Document::number.
  // The document's rows of every tensor of the forward pass, token losses included, one behind the
  // other.
  std::map<StepLocation, std::map<std::string, std::vector<float>>> activations;
  std::vector<std::vector<float>> embedding_gradient;  // [step], of the whole table.
  // In fp8: amaxes and exponents of inputs, of a step and a microbatch.
  std::map<std::pair<std::int64_t, int>, std::map<std::string, std::vector<float>>> words;
};

class DocumentRecorder : public StepListener {
 public:
  // `steps` come again and again.
  DocumentRecorder(const Scenario& scenario, const std::vector<StepData>& steps)
      : scenario_(scenario), steps_(steps) {}
  void watch(Trainer& trainer) { trainer_ = &trainer; }

  void forward_done(int microbatch, const std::vector<NamedTensor>& names, bool live) override {
    if (!live) return;
    std::vector<StoredValues> tensors;
    for (const NamedTensor& name : names) tensors.push_back(name.tensor);
    const std::vector<std::vector<float>> values = trainer_->read(tensors);
    for (std::size_t i = 0; i < names.size(); ++i) note(microbatch, names[i], values[i]);
  }

  // Sharded, the table may be cut into several views.
  void gradients_done() override {
    std::vector<float>& table = rows.embedding_gradient.emplace_back();
    for (const ParameterView& p : trainer_->parameters()) {
      if (p.index != 0) continue;
      const std::vector<float> part = trainer_->read(p.gradient);
      table.insert(table.end(), part.begin(), part.end());
    }
  }

  DocumentRows rows;

 private:
  // [T, columns], or [1, T] for one value a row. A row of the experts' buffer belongs to no row of
  // the pack.
  void note(int microbatch, const NamedTensor& name, const std::vector<float>& values) {
    const std::int64_t length = scenario_.data.pack_length;
    const auto step = static_cast<std::int64_t>(rows.embedding_gradient.size());
    if (name.name.ends_with(".x_amax") || name.name.ends_with(".x_k"))
      rows.words[{step, microbatch}][name.name] = values;
    const bool transposed = name.tensor.rows == 1 && name.tensor.cols == length;
    if (name.rows != NamedTensor::Rows::pack || (name.tensor.rows != length && !transposed)) return;
    const std::int64_t cols = transposed ? 1 : name.tensor.cols;
    const StepData& data = steps_[static_cast<std::size_t>(step) % steps_.size()];
    auto first = values.begin();
    for (const Document& document :
         data.microbatches[static_cast<std::size_t>(microbatch)].documents) {
      const std::int64_t tokens = std::ssize(document.tokens);
      const std::int64_t slot = slot_rows(tokens, scenario_.data.gaps, scenario_.data.align);
      rows.activations[{step, document.number}][name.name].assign(first, first + tokens * cols);
      first += slot * cols;
    }
  }

  const Scenario& scenario_;
  const std::vector<StepData>& steps_;
  Trainer* trainer_ = nullptr;
};

inline DocumentRows rows_of_documents(const Scenario& scenario,
                                      const std::vector<StepData>& steps) {
  const FixedData data(steps);
  DocumentRecorder recorder(scenario, steps);
  Device device(open_device_under_test());
  Trainer trainer(device, scenario, data, {.listener = &recorder});
  recorder.watch(trainer);
  while (trainer.steps_done() < scenario.training.steps) trainer.step();
  return std::move(recorder.rows);
}
// The same documents in every step.
inline DocumentRows rows_of_documents(const Scenario& scenario, const StepData& documents) {
  return rows_of_documents(scenario, std::vector<StepData>{documents});
}

// The first thing in which the documents of both runs differ, or "". There is one at least.
inline std::string difference_of_documents(const DocumentRows& a, const DocumentRows& b) {
  std::int64_t compared = 0;
  for (const auto& [place, tensors] : a.activations) {
    const auto other = b.activations.find(place);
    if (other == b.activations.end()) continue;
    ++compared;
    const std::string of =
        " of document " + std::to_string(place.second) + ", step " + std::to_string(place.first);
    if (tensors.size() != other->second.size()) return "tensors" + of;
    for (const auto& [name, values] : tensors) {
      const auto found = other->second.find(name);
      if (found == other->second.end() || !same_bits(values, found->second)) return name + of;
    }
  }
  return compared > 0 ? "" : "no document is in both";
}

}  // namespace lockstep::test
