// What `verify` says on stderr while it runs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "harness/base/progress.h"
#include "harness/base/stopwatch.h"
#include "harness/run/suite.h"
#include "harness/verify/suite_run.h"

namespace lockstep {

class SuiteProgress {
 public:
  SuiteProgress(bool quiet, const std::vector<PlannedCase>& cases);

  void finished(std::size_t number, const CaseResult& result);
  // On a terminal, the step of the case that has run longest. A case of more than ten seconds is a
  // line of its own everywhere, and again each time that its time has doubled.
  void waited(const std::vector<CaseUnderWay>& running);

 private:
  std::string counted(const std::string& text) const;
  std::string text_of(const CaseUnderWay& one) const;

  Progress progress_;
  const std::vector<PlannedCase>& cases_;
  std::size_t done_ = 0;
  std::map<std::size_t, double> told_at_;  // Seconds at which a slow case was told last.
  Stopwatch shown_;
};

}  // namespace lockstep
