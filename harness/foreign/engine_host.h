// Judges scenarios on one engine: its processes live for many cases, and are replaced where they
// fail (docs/engine-protocol.md, sections 1, 5, 10 and 11).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/foreign/engine_case.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/engine_result.h"
#include "harness/foreign/engine_world.h"
#include "harness/foreign/relation.h"

namespace lockstep::foreign {

struct HostOptions {
  std::string command;                        // What --engine gave.
  double deadline_s = 60;                     // For one run.
  std::vector<AskedRelation> relations = {};  // None: all.
  bool stop_at_first = false;                 // Ask no relation after one that is violated,
  // but for violations that are known.
  std::function<bool(const Scenario&, const RelationOutcome&)> is_known = {};
};

class EngineHost {
 public:
  explicit EngineHost(HostOptions options) : options_(std::move(options)) {}

  // Starts the engine with one rank, if none runs. WorldError, RequestError, EngineFailure as
  // EngineWorld.
  const Hello& hello();
  // Judges what the engine honours of one precision of a scenario. WorldError where there is no
  // engine to be had any more, Interrupted.
  EngineResult judge(const Scenario& scenario);
  // For each relation whether it applies to a projected scenario, as a sentence: nothing is run.
  std::vector<std::string> why_not(const Scenario& scenario);
  // From here on only these; none: all.
  void ask_for(std::vector<AskedRelation> relations) { options_.relations = std::move(relations); }
  // From here on a case ends at its first violation that is not known.
  void stop_at_first(std::function<bool(const Scenario&, const RelationOutcome&)> is_known) {
    options_.stop_at_first = true;
    options_.is_known = std::move(is_known);
  }
  // From here on when cases start fresh processes to compare with; nothing: as usual. Starting them
  // may take longer than all else: a search that runs many cases leaves it out, and looks at its
  // result with them.
  void start_fresh_processes(std::optional<FreshProcesses> fresh) { fresh_ = fresh; }
  // Says bye.
  void close();
  const std::string& command() const { return options_.command; }

 private:
  class Case;
  FreshProcesses fresh_processes() const;
  EngineWorld& world(int ranks);
  // After a case: the engine forgets it, or is ended. A failure to do so is the case's, unless that
  // has one.
  void clear(EngineResult& result);
  void end_world();
  void note_exit_between_requests(const EngineFailure& failure);

  HostOptions options_;
  Hello hello_;
  bool has_hello_ = false;
  std::optional<FreshProcesses> fresh_;
  std::unique_ptr<EngineWorld> world_;
  std::int64_t cases_ = 0;
  int exits_in_a_row_ = 0;
};

}  // namespace lockstep::foreign
