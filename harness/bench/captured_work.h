// Work on a stream of its own, timed by the host.
#pragma once

#include <functional>

#include "engine/device/backend.h"
#include "harness/base/stopwatch.h"

namespace lockstep {

class BenchStream {
 public:
  explicit BenchStream(Backend& backend)
      : backend_(backend),
        stream_(backend.create_stream("bench")),
        event_(backend.create_event()) {}
  BenchStream(const BenchStream&) = delete;
  BenchStream& operator=(const BenchStream&) = delete;
  ~BenchStream() {
    backend_.destroy_event(event_);
    backend_.destroy_stream(stream_);
  }

  Backend& backend() const { return backend_; }
  BackendStream* get() const { return stream_; }
  // What follows comes behind all of what was submitted. In a graph the end of an op may otherwise
  // run beside what follows, and its time would not show.
  void end_work() const { backend_.record(stream_, event_, false); }
  // Seconds from the first call of `submit` until the device has done what it submitted.
  double seconds(const std::function<void()>& submit) const {
    const Stopwatch watch;
    submit();
    backend_.synchronize(stream_);
    return watch.seconds();
  }

 private:
  Backend& backend_;
  BackendStream* stream_;
  BackendEvent* event_;
};

// Work as one graph, so that the host's part is one launch.
class CapturedWork {
 public:
  CapturedWork(const BenchStream& stream, const std::function<void(BackendStream*)>& work)
      : stream_(stream) {
    stream_.backend().begin_capture(stream_.get());
    work(stream_.get());
    graph_ = stream_.backend().end_capture(stream_.get());
  }
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;
  ~CapturedWork() { stream_.backend().destroy_graph(graph_); }

  double seconds() const {
    return stream_.seconds([&] { stream_.backend().launch(graph_, stream_.get()); });
  }

 private:
  const BenchStream& stream_;
  BackendGraph* graph_;
};

}  // namespace lockstep
