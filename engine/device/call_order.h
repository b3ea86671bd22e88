// One communicator is one queue: a call on another stream than the one before waits for it. What is
// captured is a queue of its own, which runs where its graph is launched.
#pragma once

#include "engine/device/device.h"

namespace lockstep {

class CallOrder {
 public:
  explicit CallOrder(Device& device) : device_(device), outside_(device), inside_(device) {}
  void begin(const Stream& stream);  // Before what a call puts on the stream,
  void end(const Stream& stream);    // and behind it.

 private:
  struct Queue {
    explicit Queue(Device& device) : over(device, "call is over") {}
    Event over;  // The last call is over.
    int last_stream = -1;
  };
  Queue& queue() { return device_.recording() < 0 ? outside_ : inside_; }

  Device& device_;
  Queue outside_, inside_;
  int recording_ = -1;  // The capture or dry run that `inside_` is of.
};

}  // namespace lockstep
