// `lockstep shrink --engine`: runs of the search are cases on the engine, under the relation that
// failed first.
#include "harness/cli/engine_shrink.h"

#include <algorithm>
#include <cctype>

#include "harness/report/report.h"
#include "harness/shrink/reason.h"

namespace lockstep {

EngineShrink::EngineShrink(const Options& options) : session_(options) {
  session_.host().stop_at_first({});
}

std::vector<Scenario> EngineShrink::projected(const std::vector<Scenario>& cases) {
  std::vector<Scenario> list;
  for (const Scenario& one : cases) {
    foreign::Projection projection = foreign::project(one, session_.hello().honours);
    if (!projection.scenario) throw RequestError(one.name + ": " + projection.why_not);
    projection.scenario->folder = one.folder;
    list.push_back(std::move(*projection.scenario));
  }
  return list;
}

CaseResult EngineShrink::run(const Scenario& scenario) {
  foreign::EngineResult result = session_.host().judge(scenario);
  if (!result.projected.empty()) {
    // The token would be another scenario's.
    result.result.verdict = Verdict::skipped;
    result.result.reason = "the engine does not honour " + result.projected.front().key;
    return result.result;
  }
  const std::string relation = result.relation.substr(0, result.relation.find(':'));
  if (!narrowed_ && fails(result.result) && !relation.empty()) {
    session_.host().ask_for({foreign::asked_relation(relation)});
    session_.host().start_fresh_processes(false);
    narrowed_ = true;
  }
  return result.result;
}

CaseResult EngineShrink::confirm(const Scenario& scenario) {
  session_.host().start_fresh_processes(true);
  CaseResult result = run(scenario);
  session_.host().start_fresh_processes(false);
  return result;
}

std::string EngineShrink::name_of(const CaseResult& result) {
  std::string id = result.reason.substr(0, result.reason.find(' '));
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string name = reason_name(result);
  return id.size() > 1 && id[0] == 'r' && std::isdigit(static_cast<unsigned char>(id[1]))
             ? id + "-" + name
             : name;
}

}  // namespace lockstep
