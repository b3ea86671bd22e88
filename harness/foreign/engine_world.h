// All ranks of an engine that lockstep did not write, as one: what is asked is asked of every rank
// (docs/engine-protocol.md, sections 1, 4, 5, 10 and 11).
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/run_folder.h"
#include "harness/foreign/engine_process.h"
#include "harness/foreign/hello.h"

namespace lockstep::foreign {

class EngineWorld {
 public:
  // Starts `ranks` processes and waits for their hello. Throws WorldError where the command cannot
  // be started or dies before it has answered, RequestError for another version of the protocol,
  // and EngineFailure for a hello that is not as the protocol says.
  EngineWorld(const std::string& command, int ranks);
  EngineWorld(const EngineWorld&) = delete;
  EngineWorld& operator=(const EngineWorld&) = delete;
  ~EngineWorld();  // Kills what runs.

  const Hello& hello() const { return hello_; }
  int ranks() const { return static_cast<int>(processes_.size()); }
  const std::string& folder() const { return folder_.path(); }
  // Whether every process runs and has answered what it was asked.
  bool is_usable() const;

  // The final reply of each rank. Throws EngineFailure, after which the world is of no use.
  std::vector<boost::json::object> ask(const boost::json::object& request, double seconds);
  // Forgets the case. False where the engine wants new processes.
  bool reset();
  // Says bye, and ends the processes as section 1 says.
  void close();

 private:
  std::vector<boost::json::object> ask_each(const std::vector<boost::json::object>& requests,
                                            double seconds);
  void wait(double seconds);
  void take_hellos(const std::vector<boost::json::object>& replies);

  RunFolder folder_;
  std::vector<std::unique_ptr<EngineProcess>> processes_;
  Hello hello_;
  bool failed_ = false;
};

}  // namespace lockstep::foreign
