#include "harness/verify/suite_progress.h"

#include <algorithm>
#include <cstdio>

#include "harness/report/report.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

constexpr double kSlowSeconds = 10, kShortSeconds = 1, kShowEverySeconds = 0.25;

std::string whole_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f s", seconds);
  return text;
}

}  // namespace

SuiteProgress::SuiteProgress(bool quiet, const std::vector<PlannedCase>& cases)
    : progress_(quiet), cases_(cases) {}

std::string SuiteProgress::counted(const std::string& text) const {
  return "[" + std::to_string(done_) + "/" + std::to_string(cases_.size()) + "] " + text;
}

std::string SuiteProgress::text_of(const CaseUnderWay& one) const {
  const Scenario& scenario = at(cases_, one.number).scenario;
  return scenario.name + " " + to_text(scenario.numerics.front()) + ": " + one.phase;
}

void SuiteProgress::finished(std::size_t number, const CaseResult& result) {
  ++done_;
  told_at_.erase(number);
  progress_.show(counted(result.name + " " + result.numerics + ": " + to_text(result.verdict) +
                         ", " + seconds_text(result.seconds) + " s"));
}

void SuiteProgress::waited(const std::vector<CaseUnderWay>& running) {
  for (const CaseUnderWay& one : running) {
    double& told = told_at_[one.number];
    if (one.seconds < std::max(kSlowSeconds, 2 * told)) continue;
    told = one.seconds;
    progress_.say("slow: " + text_of(one) + ", " + whole_seconds(one.seconds) + " so far");
  }
  const auto longest =
      std::max_element(running.begin(), running.end(),
                       [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  if (longest == running.end() || longest->seconds < kShortSeconds ||
      shown_.seconds() < kShowEverySeconds)
    return;
  shown_ = Stopwatch();
  progress_.replace(counted(text_of(*longest) + ", " + whole_seconds(longest->seconds)));
}

}  // namespace lockstep
