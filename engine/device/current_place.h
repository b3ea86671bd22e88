// The place in the step of the call that is being made, for a backend that keeps it with the work.
#pragma once

#include "engine/device/step_location.h"

namespace lockstep {

inline thread_local const StepLocation* current_place = nullptr;  // Null outside of calls.

class CallAt {
 public:
  explicit CallAt(const StepLocation& place) : before_(current_place) { current_place = &place; }
  CallAt(const CallAt&) = delete;
  CallAt& operator=(const CallAt&) = delete;
  ~CallAt() { current_place = before_; }

 private:
  const StepLocation* before_;
};

}  // namespace lockstep
