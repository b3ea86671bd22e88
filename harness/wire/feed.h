// The documents and weights of a run as the other side wrote them (docs/engine-protocol.md, section
// 7).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/train/trainer_options.h"
#include "scenarios/documents/documents.h"

namespace lockstep::wire {

class Feed : public DataSource {
 public:
  // Throws WireError for files that are missing, unlike section 7, or not what a run of this
  // scenario needs.
  Feed(const std::string& folder, const Scenario& scenario);

  StepData training(std::int64_t step) const override;
  StepData evaluation(std::int64_t step) const override;
  double unigram_entropy() const override { return 0; }  // Nobody asks an engine for it.

  const std::map<std::string, std::vector<float>>& weights() const { return weights_; }
  const StepScalars& scalars() const { return scalars_; }

 private:
  enum class Phase { training = 0, evaluation = 1 };
  void read_packs(const std::string& path, const Scenario& scenario);
  void require_complete(const Scenario& scenario) const;
  const StepData* find(Phase phase, std::int64_t step) const;

  std::map<std::pair<Phase, std::int64_t>, StepData> steps_;
  std::map<std::string, std::vector<float>> weights_;
  StepScalars scalars_;
};

}  // namespace lockstep::wire
