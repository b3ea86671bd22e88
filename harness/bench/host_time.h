// The time of a step during which the host did not wait for the device.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/device/observer.h"
#include "harness/base/stopwatch.h"

namespace lockstep {

// Counts the calls of a step, and the time between a call that waits and the next call.
class HostTime : public Observer {
 public:
  void begin() {
    waited_ = 0;
    waiting_.reset();
  }
  double waited() {
    resume();
    return waited_;
  }
  void on_call(const IssuedCall& issued) override {
    std::visit(Overloaded{
                   [&](const SubmitCall&) { call(); },
                   [&](const CopyCall&) { call(); },
                   [&](const FillCall&) { call(); },
                   [&](const LaunchCall&) { call(); },
                   [&](const HostAccessCall&) { resume(); },
                   [&](const SyncCall&) { wait(); },
                   [](const auto&) {},
               },
               issued.call);
  }
  std::int64_t calls = 0;

 private:
  void call() {
    ++calls;
    resume();
  }
  void resume() {
    if (waiting_) waited_ += waiting_->seconds();
    waiting_.reset();
  }
  void wait() {
    resume();
    waiting_.emplace();
  }
  std::optional<Stopwatch> waiting_;
  double waited_ = 0;
};

}  // namespace lockstep
