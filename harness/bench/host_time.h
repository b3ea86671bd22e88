// How long the host of a step did not wait for the device.
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
  void on_submit(int, const Submission&, const Place&) override { call(); }
  void on_copy(int, void*, const void*, std::size_t, CopyKind, const Place&) override { call(); }
  void on_fill(int, void*, std::size_t, const Place&) override { call(); }
  void on_launch(int, int, const Ledger&, const Place&) override { call(); }
  void on_host_write(const void*, std::size_t, const Place&) override { resume(); }
  void on_host_read(const void*, std::size_t, const Place&) override { resume(); }
  void on_synchronize_stream(int) override { wait(); }
  void on_synchronize_event(int) override { wait(); }
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
