// An error that the engine found in its own run.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

// A buffer moved since a capture, a replay would submit other work than was captured, or a capture failed.
class EngineViolation : public std::runtime_error {
 public:
  EngineViolation(std::string judge, const std::string& what) : std::runtime_error(what), judge_(std::move(judge)) {}
  const std::string& judge() const { return judge_; }  // "address", "capture", "ledger"

 private:
  std::string judge_;
};

}  // namespace lockstep
