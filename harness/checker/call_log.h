// Logs every call of a run at the device, so that other observers can be told of the same run
// later: for example a checker that ignores one edge.
#pragma once

#include <vector>

#include "engine/device/observer.h"

namespace lockstep {

class CallLog : public Observer {
 public:
  explicit CallLog(Observer& next) : next_(next) {}
  void tell(Observer& observer) const {
    for (const IssuedCall& call : calls_) observer.on_call(call);
  }
  void on_call(const IssuedCall& call) override {
    calls_.push_back(call);
    next_.on_call(call);
  }

 private:
  Observer& next_;
  std::vector<IssuedCall> calls_;
};

}  // namespace lockstep
