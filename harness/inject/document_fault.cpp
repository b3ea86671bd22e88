#include "harness/inject/document_fault.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/core/fault.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

// Documents are wrong as if a scenario said something else: in all phases or in training alone.
using ScenarioEdit = void (*)(Scenario&);
// Or the documents of a step are changed after they were read.
using StepEdit = void (*)(StepData&);
// Or the documents of a step come from a scenario of the step's own.
using StepScenario = void (*)(Scenario&, std::int64_t step);
// Or an evaluation is given another step's documents.
using EvaluationEdit = StepData (*)(const DataSource& right, std::int64_t step);

struct DocumentFault {
  FaultRow row;
  ScenarioEdit scenario = nullptr;
  ScenarioEdit training = nullptr;
  StepEdit step = nullptr;
  EvaluationEdit evaluation = nullptr;
  StepScenario each_step = nullptr;
};

constexpr const char* kTokens = "documents: token";
constexpr const char* kTargets = "documents: target";

constexpr std::array kFaults{
    DocumentFault{.row = {"documents-end-at-their-piece", kLoss, kTargets},
                  .scenario = [](Scenario& s) { s.data.mask.document_end = true; }},
    DocumentFault{.row = {"documents-mask-a-row-less", kLoss, kTargets},
                  .scenario =
                      [](Scenario& s) {
                        std::int64_t& prefix = s.data.mask.prefix;
                        prefix = std::max<std::int64_t>(0, prefix - 1);
                      }},
    DocumentFault{.row = {"documents-mask-no-microbatch", kLoss, kTargets},
                  .scenario = [](Scenario& s) { s.data.mask.microbatches.clear(); }},
    DocumentFault{.row = {"documents-mask-no-role", kLoss, kTargets},
                  .scenario =
                      [](Scenario& s) {
                        s.data.mask.roles.insert(s.data.mask.roles.end(), {"system", "user"});
                      }},
    DocumentFault{.row = {"documents-mask-no-share", kLoss, kTargets},
                  .scenario = [](Scenario& s) { s.data.mask.rate = {}; }},
    DocumentFault{.row = {"documents-numbered-by-microbatch", kRandom, "documents: number"},
                  .step =
                      [](StepData& step) {
                        for (Microbatch& microbatch : step.microbatches) {
                          std::int32_t number = 0;
                          for (Document& document : microbatch.documents)
                            document.number = number++;
                        }
                      }},
    DocumentFault{
        .row = {"documents-of-another-distribution", kRandom, "documents: tokens documents"},
        .scenario = [](Scenario& s) { ++s.data.distribution.seed; }},
    DocumentFault{.row = {"documents-of-another-seed", kRandom, kTokens},
                  .scenario = [](Scenario& s) { s.training.seed ^= 1; }},
    DocumentFault{
        .row = {"evaluation-of-the-first-step", kWarmup, "documents: token number"},
        .evaluation = [](const DataSource& right, std::int64_t) { return right.evaluation(0); }},
    DocumentFault{.row = {"evaluation-on-documents-of-training", kWarmup, "documents: token"},
                  .evaluation = [](const DataSource& right,
                                   std::int64_t step) { return right.training(step); }},
    DocumentFault{.row = {"packs-before-a-change-counted-anew", kRandom,
                          "documents: token tokens documents target targets rows"},
                  .each_step =
                      [](Scenario& s, std::int64_t step) {
                        s.training.microbatches = s.training.microbatches_at(step);
                        s.training.change_microbatches_at.clear();
                      }},
    DocumentFault{.row = {"packs-counted-as-measured", kRandom, "documents: tokens documents"},
                  .scenario =
                      [](Scenario& s) {
                        Shape& shape = s.data.distribution.shape;
                        shape = shape == Shape::published ? Shape::measured : shape;
                      }},
    DocumentFault{
        .row = {"packs-forget-the-smallest-count", kRandom, "documents: tokens documents"},
        .scenario =
            [](Scenario& s) {
              auto& pairs = s.data.distribution.histogram;
              if (pairs.size() > 1) pairs.erase(pairs.begin());
            }},
    DocumentFault{.row = {"targets-are-their-own-tokens", kLoss, kTargets},
                  .step =
                      [](StepData& step) {
                        for (Microbatch& microbatch : step.microbatches) {
                          for (Document& document : microbatch.documents) {
                            const auto own = [](std::int32_t token, std::int32_t target) {
                              return target < 0 ? target : token;
                            };
                            std::transform(document.tokens.begin(), document.tokens.end(),
                                           document.targets.begin(), document.targets.begin(), own);
                          }
                        }
                      }},
    DocumentFault{.row = {"training-on-documents-of-evaluations", kWarmup, "documents: token"},
                  .training = [](Scenario& s) { s.training.eval_every = 0; }}};

Scenario edited(Scenario scenario, ScenarioEdit edit) {
  if (edit != nullptr) edit(scenario);
  return scenario;
}

class WrongDocuments : public DataSource {
 public:
  WrongDocuments(const Scenario& scenario, const DocumentFault& fault)
      : scenario_(scenario),
        fault_(fault),
        all_(open_data(edited(scenario, fault.scenario))),
        trained_(open_data(
            edited(scenario, fault.training != nullptr ? fault.training : fault.scenario))) {}

  StepData training(std::int64_t step) const override {
    if (fault_.each_step == nullptr) return changed(trained_->training(step));
    Scenario of_step = scenario_;
    fault_.each_step(of_step, step);
    return open_data(of_step)->training(step);
  }
  StepData evaluation(std::int64_t step) const override {
    return changed(fault_.evaluation != nullptr ? fault_.evaluation(*all_, step)
                                                : all_->evaluation(step));
  }
  double unigram_entropy() const override { return all_->unigram_entropy(); }

 private:
  StepData changed(StepData step) const {
    if (fault_.step != nullptr) fault_.step(step);
    return step;
  }

  const Scenario& scenario_;
  const DocumentFault& fault_;
  const std::unique_ptr<DataSource> all_, trained_;
};

}  // namespace

std::span<const FaultRow> document_fault_rows() {
  static const auto rows = [] {
    std::array<FaultRow, kFaults.size()> list;
    std::transform(kFaults.begin(), kFaults.end(), list.begin(),
                   [](const DocumentFault& fault) { return fault.row; });
    return list;
  }();
  return rows;
}

std::vector<std::string> document_faults() {
  std::vector<std::string> names;
  for (const DocumentFault& one : kFaults) names.emplace_back(one.row.name);
  return names;
}

std::unique_ptr<DataSource> open_planted_data(const Scenario& scenario) {
  for (const DocumentFault& one : kFaults) {
    if (fault(one.row.name)) return std::make_unique<WrongDocuments>(scenario, one);
  }
  return open_data(scenario);
}

}  // namespace lockstep
