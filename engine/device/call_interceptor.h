// Stands before the device, so that a test of the judges can do there what a bug of the engine
// would do: leave a call out, make it twice, on another stream or with another address. Observer,
// ledger and device see what became of the call, never the call itself. Every run but those of
// `lockstep mutate` is without one.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/device/ledger.h"

namespace lockstep {

class Device;

class CallInterceptor {
 public:
  virtual ~CallInterceptor() = default;
  virtual void attached(Device& device) {}  // By the device's constructor.
  virtual void created_stream(int stream, const char* name) {}
  virtual void created_event(int event, const char* name) {}

  // The calls that are made in place of a submit, copy, fill, exchange, record or wait. In dry runs
  // too, where they are only listed.
  virtual std::vector<IssuedCall> instead_of(const IssuedCall& call, bool dry_run) {
    return {call};
  }
  // Returns how many times a graph is launched for one launch. `graph` counts captures.
  virtual int launches(int stream, int graph, const Ledger&, const StepLocation&) { return 1; }
  // Whether the host really waits: for all of a stream, or for an event (the other is -1).
  virtual bool synchronizes(int stream, int event) { return true; }
  // Memory that a new buffer shares with an older one; null for memory of its own.
  virtual void* shared_memory(std::size_t bytes, bool pinned) { return nullptr; }
  virtual void allocated(void* memory, std::size_t bytes, bool pinned) {}
  // Whether memory goes back when its owner lets go of it.
  virtual bool releases(void* memory) { return true; }
};

}  // namespace lockstep
