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
    // What processes differ in, only others of them show.
    over_processes_ = result.result.reason.find(" processes") != std::string::npos;
    hurry(true);
    narrowed_ = true;
  }
  return result.result;
}

CaseResult EngineShrink::confirm(const Scenario& scenario) {
  hurry(false);
  CaseResult result = run(scenario);
  hurry(true);
  return result;
}

void EngineShrink::hurry(bool hurries) {
  using foreign::FreshProcesses;
  session_.host().start_fresh_processes(over_processes_ ? FreshProcesses::always
                                        : hurries       ? FreshProcesses::never
                                                        : FreshProcesses::before_a_difference);
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
