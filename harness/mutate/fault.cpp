#include "harness/mutate/fault.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {

bool is_bit_judge(JudgeKind judge) {
  using enum JudgeKind;
  static constexpr std::array kJudges{metadata, activation, loss,      gradient,
                                      norm,     weights,    evaluation};
  return std::find(kJudges.begin(), kJudges.end(), judge) != kJudges.end();
}

bool is_right_reason(const Fault& fault, const CaseResult& result) {
  std::string said = result.reason;
  if (result.first_difference)
    said += " " + result.first_difference->op + " " + result.first_difference->tensor;
  return std::any_of(fault.reasons.begin(), fault.reasons.end(), [&](const Reason& reason) {
    const bool judge = reason.judge ? *reason.judge == result.judge : is_bit_judge(result.judge);
    const auto named = [&](const std::string& word) {
      return said.find(word) != std::string::npos;
    };
    return judge &&
           (reason.words.empty() || std::any_of(reason.words.begin(), reason.words.end(), named));
  });
}

}  // namespace lockstep
