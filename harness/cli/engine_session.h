// What the commands with --engine share: the engine's processes, the results so far, the reports.
#pragma once

#include <set>
#include <string>

#include "harness/base/options.h"
#include "harness/base/stopwatch.h"
#include "harness/foreign/engine_host.h"
#include "harness/foreign/engine_report.h"

namespace lockstep {

class EngineSession {
 public:
  // Starts the engine. Throws as EngineHost::hello does, and RequestError for a wrong option or
  // file.
  explicit EngineSession(const Options& options);

  const foreign::Hello& hello() { return host_.hello(); }
  foreign::EngineHost& host() { return host_; }
  foreign::EngineReport& report() { return report_; }
  const foreign::EngineReport& report() const { return report_; }
  // From here on a case ends at its first violation that was not expected.
  void stop_at_first();
  // Judges a scenario and keeps its result, with what was expected.
  const foreign::EngineResult& judge(const Scenario& scenario, const std::string& file = "");
  // Whether it projects to a scenario that was judged before; it is one from now on.
  bool is_repeated(const Scenario& scenario);
  // Writes --json, --junit and --html; `more` is put into the JSON.
  void write_reports(const boost::json::object& more = {}) const;
  void finish();  // Says bye, and stops the clock.

 private:
  const Options& options_;
  const Stopwatch watch_;
  foreign::EngineHost host_;
  foreign::EngineReport report_;
  std::set<std::string> judged_;
};

}  // namespace lockstep
