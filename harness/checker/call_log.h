// Every call of a run at the device, to be told to other observers later: a judge can go over the
// same run again with one edge less.
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
