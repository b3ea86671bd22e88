// Forwards each call to several observers in turn. If one throws, those after it are not told.
#pragma once

#include <utility>
#include <vector>

#include "engine/device/observer.h"

namespace lockstep {

class ObserverList : public Observer {
 public:
  explicit ObserverList(std::vector<Observer*> observers) : observers_(std::move(observers)) {}
  void on_call(const IssuedCall& call) override {
    for (Observer* observer : observers_) observer->on_call(call);
  }

 private:
  std::vector<Observer*> observers_;
};

}  // namespace lockstep
