// Stream capture in thread-local mode: what becomes a node, what joins, and what CUDA refuses. The
// names of the errors and what breaks a capture are those of an H200 with driver 580 and CUDA 13.0.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "engine/sim/work.h"

namespace lockstep {

struct SimCapture {
  std::thread::id thread;
  BackendStream* origin = nullptr;
  std::vector<BackendStream*> members;  // In order of joining.
  SimGraph graph;
  bool invalidated = false;
};

// The captures under way.
class SimCaptures {
 public:
  void begin(BackendStream& stream);
  // The capture is over even if this throws, unless it was not begun on this stream.
  std::unique_ptr<SimGraph> end(BackendStream& stream);

  // Calls that are illegal while this thread captures: they break its captures and throw.
  void refuse_unsafe(const char* call);
  bool breaks_unsafe() noexcept;  // The same, for calls that cannot throw: true if there was a
                                  // capture to break.
  // Calls that are illegal on a stream that takes part in a capture.
  void refuse_on(BackendStream& stream, const char* call);
  // Events whose last record was captured.
  void refuse_captured(const SimEvent& event, const char* call);
  // The same, of a capture that is over or broken.
  void refuse_over(const SimEvent& event, const char* call) const;
  void forget(BackendStream& stream) noexcept;  // The stream is being destroyed.

  // Adds work on a stream that takes part in a capture; throws if the capture was invalidated.
  void add(BackendStream& stream, SimWork work, const char* call);
  void record(BackendStream& stream, SimEvent& event);
  // False if there is nothing to wait for in a capture: the wait is an ordinary one.
  bool wait(BackendStream& stream, const SimEvent& event);
  void wait_external(BackendStream& stream, const std::shared_ptr<SimEvent>& event);

 private:
  void require_valid(const BackendStream& stream, const char* call) const;
  void close(SimCapture& capture) noexcept;
  static void join(BackendStream& stream, const std::shared_ptr<SimCapture>& capture);
  std::vector<std::shared_ptr<SimCapture>> open_;
};

}  // namespace lockstep
