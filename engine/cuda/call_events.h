// Events of calls on streams: whether the last one is done, and how long some took.
#pragma once

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "engine/cuda/call.h"

namespace lockstep {

class LastCall {
 public:
  LastCall() {
    cuda_call(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  LastCall(const LastCall&) = delete;
  ~LastCall() { static_cast<void>(cudaEventDestroy(done_)); }
  // It is all that is on the stream now.
  void record(BackendStream* stream) {
    cuda_call(cudaEventRecord(done_, cuda(stream)), "cudaEventRecord");
  }
  bool busy() const {
    const bool busy = cudaEventQuery(done_) == cudaErrorNotReady;
    // Clears the query's status, which would look like a failed launch of this thread.
    if (busy) static_cast<void>(cudaGetLastError());
    return busy;
  }

 private:
  cudaEvent_t done_ = nullptr;
};

class EventStopwatch final : public StreamStopwatch {
 public:
  EventStopwatch() = default;
  EventStopwatch(const EventStopwatch&) = delete;
  ~EventStopwatch() override {
    for (const auto& [begin, end] : pairs_) {
      static_cast<void>(cudaEventDestroy(begin));
      if (end != nullptr) static_cast<void>(cudaEventDestroy(end));
    }
  }
  void begin(BackendStream* stream) override { pairs_.emplace_back(recorded(stream), nullptr); }
  void end(BackendStream* stream) override { pairs_.back().second = recorded(stream); }
  double take() override {
    double seconds = 0;
    for (const auto& [begin, end] : std::exchange(pairs_, {})) {
      float ms = 0;
      cuda_call(cudaEventSynchronize(end), "cudaEventSynchronize");
      cuda_call(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      seconds += ms * 1e-3;
      for (cudaEvent_t event : {begin, end}) cuda_call(cudaEventDestroy(event), "cudaEventDestroy");
    }
    return seconds;
  }

 private:
  static cudaEvent_t recorded(BackendStream* stream) {
    cudaEvent_t event = nullptr;
    cuda_call(cudaEventCreate(&event), "cudaEventCreate");
    cuda_call(cudaEventRecord(event, cuda(stream)), "cudaEventRecord");
    return event;
  }
  std::vector<std::pair<cudaEvent_t, cudaEvent_t>> pairs_;  // Before and behind.
};

}  // namespace lockstep
