// A judge's view of the device: it is told every call before the call takes effect. The harness
// implements it.
#pragma once

#include "engine/device/call.h"

namespace lockstep {

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_call(const IssuedCall&) {}
};

}  // namespace lockstep
