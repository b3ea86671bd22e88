#include "harness/cli/engine_session.h"

#include "harness/cli/write_reports.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/projection.h"
#include "harness/report/report.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr double kDeadlineSeconds = 60;  // For a run, where --timeout is not given.

foreign::HostOptions host_options(const Options& options) {
  foreign::HostOptions host{.command = options.text("engine"), .deadline_s = kDeadlineSeconds};
  if (options.knows("timeout") && options.has("timeout"))
    host.deadline_s = options.seconds("timeout");
  if (options.knows("relation") && options.has("relation"))
    host.relations = foreign::asked_relations(options.text("relation"));
  return host;
}

}  // namespace

EngineSession::EngineSession(const Options& options)
    : options_(options), host_(host_options(options)) {
  try {
    report_.hello = host_.hello();
  } catch (const foreign::EngineFailure& failure) {
    throw WorldError("--engine: " + std::string(failure.what()));
  }
  std::string path = report_.hello.expectations;
  if (options.knows("expect-failures") && options.has("expect-failures"))
    path = options.text("expect-failures");
  if (!path.empty()) report_.expected = foreign::ExpectedFailures(path);
}

void EngineSession::stop_at_first() {
  host_.stop_at_first([this](const Scenario& scenario, const foreign::RelationOutcome& one) {
    return report_.expected.expects(scenario, one, report_.hello);
  });
}

const foreign::EngineResult& EngineSession::judge(const Scenario& scenario,
                                                  const std::string& file) {
  foreign::EngineResult result = host_.judge(scenario);
  result.result.file = file;
  report_.expected.take(result, host_.hello());
  foreign::settle(result, host_.command());
  report_.results.push_back(std::move(result));
  report_.seconds = watch_.seconds();
  return report_.results.back();
}

bool EngineSession::is_repeated(const Scenario& scenario) {
  const foreign::Projection projection = foreign::project(scenario, host_.hello().honours);
  if (!projection.scenario) return false;
  Scenario unnamed = *projection.scenario;
  unnamed.name = "any";
  unnamed.description.clear();
  return !judged_.insert(canonical_form(unnamed)).second;
}

void EngineSession::write_reports(const boost::json::object& more) const {
  boost::json::object whole = foreign::to_json(report_);
  for (const boost::json::key_value_pair& item : more) whole[item.key()] = item.value();
  lockstep::write_reports(options_, junit(report_.cases(), report_.interrupted), whole);
}

void EngineSession::finish() {
  host_.close();
  report_.seconds = watch_.seconds();
}

}  // namespace lockstep
