// The runs of `lockstep shrink --engine`.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/engine_session.h"
#include "harness/foreign/projection.h"

namespace lockstep {

class EngineShrink {
 public:
  explicit EngineShrink(const Options& options);

  // The cases as the engine honours them. Throws RequestError where one cannot be projected.
  std::vector<Scenario> projected(const std::vector<Scenario>& cases);
  // One case. After the first failure only the relation that found it is asked, with all choices,
  // and no fresh processes are started to compare with, unless these are what differs.
  CaseResult run(const Scenario& scenario);
  // The same with fresh processes.
  CaseResult confirm(const Scenario& scenario);
  // "r7-relation-qkv-weight"
  static std::string name_of(const CaseResult& result);
  void close() { session_.finish(); }

 private:
  EngineSession session_;
  void hurry(bool hurries);

  bool narrowed_ = false, over_processes_ = false;
};

}  // namespace lockstep
