#include "harness/judge/judge.h"

namespace lockstep {
namespace {

class OracleJudge final : public Judge {
 public:
  OracleJudge(const Scenario& scenario, const std::string& mutation)
      : oracle_(scenario, {.numerics = scenario.numerics.front(), .mutation = mutation}) {}
  oracle::StepResult step(std::int64_t step, const StepData& data) override {
    return oracle_.step(step, data);
  }
  oracle::StepResult evaluate(std::int64_t step, const StepData& data) override {
    return oracle_.evaluate(step, data);
  }
  const std::vector<oracle::Parameter>& parameters() const override { return oracle_.parameters(); }
  const std::vector<std::vector<float>>& expert_bias() const override {
    return oracle_.expert_bias();
  }
  std::string weight_digest() const override { return oracle_.weight_digest(); }
  std::string scaling_digest() const override { return oracle_.scaling_digest(); }

 private:
  oracle::Oracle oracle_;
};

}  // namespace

std::unique_ptr<Judge> make_oracle_judge(const Scenario& scenario, const std::string& mutation) {
  return std::make_unique<OracleJudge>(scenario, mutation);
}

}  // namespace lockstep
