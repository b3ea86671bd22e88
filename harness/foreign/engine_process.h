// One rank of an engine that lockstep did not write: a child process, its lines of JSON, and the
// last words that it said on stdout and stderr (docs/engine-protocol.md, sections 1 and 2).
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::foreign {

struct EnginePlace {
  int rank = 0, ranks = 1;
  int port = 0;             // MASTER_PORT.
  std::string called = {};  // In messages; "": "rank 0 of the engine".
};

class EngineProcess {
 public:
  // Starts `/bin/sh -c "exec COMMAND"`. Throws WorldError where there is no process to be had.
  EngineProcess(const std::string& command, EnginePlace place);
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;
  ~EngineProcess();  // Kills it, and all that it started, at once.

  // Begins a request, whose `id` is set here. Throws EngineFailure (between) if it has died or has
  // said something since the last reply, and Skipped for a request that is too long for a line.
  void ask(boost::json::object request);
  // The final reply with the lists `rows` and `tensors` of its parts, once it is whole.
  const std::optional<boost::json::object>& reply() const { return reply_; }

  static constexpr std::size_t kDescriptors = 3;
  // For poll(); those that are of no interest have fd -1.
  std::array<pollfd, kDescriptors> descriptors() const;
  // Reads and writes what can be without waiting. Throws EngineFailure.
  void serve(const std::array<pollfd, kDescriptors>& ready);

  // "rank 1 of the engine WHAT (in PHASE)", and the end of what the process printed.
  std::string told(const std::string& what) const;
  bool has_ended() const;
  // Waits until it has exited, signals it after `patience` seconds, and kills what is left.
  void end(double patience);

 private:
  void read_replies();
  void read_words();
  void take_line(const std::string& line);
  void close_channel();
  // Appends to the file of LOCKSTEP_ENGINE_LOG, if there is one.
  void log(const char* sign, const std::string& line) const;
  std::string how_it_died();
  [[noreturn]] void broken(const std::string& what) const;
  [[noreturn]] void unasked(const std::string& line) const;

  int rank_ = 0;
  std::string called_;
  pid_t child_ = -1;
  int requests_ = -1, replies_ = -1, words_ = -1;
  std::int64_t number_ = 0;  // The last request's.
  std::string unsent_, unread_, said_, phase_;
  std::size_t received_ = 0;  // Bytes of replies to this request.
  boost::json::object parts_;
  std::optional<boost::json::object> reply_;
};

}  // namespace lockstep::foreign
