// Random programs of streams, events, captures, launches and host calls, legal and illegal, without
// data races: each stream writes its own buffer. What a device makes of one is a list of lines: two
// devices conform if these are equal.
#pragma once

#include <array>
#include <random>

#include "tests/engine/device/on_sim.h"

namespace lockstep::test {

class RandomProgram {
 public:
  RandomProgram(std::unique_ptr<Backend> backend, std::uint64_t seed)
      : backend_(std::move(backend)), random_(seed) {
    for (int i = 0; i < kStreams; ++i) {
      streams_.push_back(backend_->create_stream("s"));
      events_.push_back(backend_->create_event());
      buffers_.push_back(backend_->allocate(kBytes));
      backend_->fill(streams_.back(), buffers_.back(), 0, kBytes);
    }
  }
  ~RandomProgram() {
    for (BackendGraph* graph : graphs_) backend_->destroy_graph(graph);
    for (BackendEvent* event : events_) backend_->destroy_event(event);
    for (BackendStream* stream : streams_) backend_->destroy_stream(stream);
    if (extra_) backend_->destroy_stream(extra_);
    for (void* buffer : buffers_) backend_->release(buffer);
    if (spare_) backend_->release(spare_);
  }

  std::vector<std::string> run(int calls) {
    for (int i = 0; i < calls; ++i) call();
    for (BackendStream* stream : streams_) end(stream);
    for (BackendStream* stream : streams_) backend_->synchronize(stream);
    for (std::size_t i = 0; i < streams_.size(); ++i) read(i);
    return lines_;
  }

 private:
  static constexpr int kStreams = 3;
  static constexpr std::size_t kBytes = 64;

  std::size_t below(std::size_t bound) { return random_() % bound; }
  bool is_capturing() {
    bool found = false;
    for (BackendStream* stream : streams_)
      found |= backend_->capture_status(stream) != CaptureStatus::none;
    return found;
  }
  void call() {
    const std::size_t s = below(kStreams), e = below(kStreams), what = below(27);
    BackendStream* stream = streams_[s];
    BackendEvent* event = events_[e];
    const std::string on = " " + std::to_string(s) + " " + std::to_string(e);
    if (what < 5) return fill(s, on);
    if (what < 8) return record(s, e, on);
    if (what < 11) return say("wait" + on, [&] { backend_->wait(stream, event, false); });
    if (what < 13) return say("begin" + on, [&] { backend_->begin_capture(stream); });
    if (what < 16) return end(stream);
    if (what < 18) return launch(s, on);
    if (what == 24) return renew_event(e);
    if (what == 26) return destroy_graph();
    if (below(3) != 0) return fill(s, on);  // The rest breaks most captures, so it is rare.
    if (what == 18 || what == 19) external_[e] = true;
    if (what == 18)
      return say("record external" + on, [&] { backend_->record(stream, event, true); });
    if (what == 19) return say("wait external" + on, [&] { backend_->wait(stream, event, true); });
    if (what == 25 && extra_)
      return say("destroy stream",
                 [&] { backend_->destroy_stream(std::exchange(extra_, nullptr)); });
    if (what == 25) return say("create stream", [&] { extra_ = backend_->create_stream("extra"); });
    if (what == 20) return say("synchronize" + on, [&] { backend_->synchronize(stream); });
    if (what == 21) return say("synchronize event" + on, [&] { backend_->synchronize(event); });
    if (what == 22)
      return say("query" + on,
                 [&] { below(2) ? backend_->finished(stream) : backend_->finished(event); });
    if (!spare_) return say("allocate", [&] { spare_ = backend_->allocate(16); });
    say("release", [&] { backend_->release(std::exchange(spare_, nullptr)); });
  }
  void fill(std::size_t s, const std::string& on) {
    const std::size_t first = below(kBytes), count = 1 + below(kBytes - first);
    const auto byte = static_cast<std::uint8_t>(1 + below(255));
    say("fill" + on, [&] {
      backend_->fill(streams_[s], static_cast<std::byte*>(buffers_[s]) + first, byte, count);
    });
  }
  void record(std::size_t s, std::size_t e, const std::string& on) {
    captured_[e] = backend_->capture_status(streams_[s]) != CaptureStatus::none;
    say("record" + on, [&] { backend_->record(streams_[s], events_[e], false); });
  }
  // Records and waits that are under way go on. What becomes of an event that a capture or a graph
  // holds was not measured.
  void renew_event(std::size_t e) {
    if (captured_[e] || external_[e]) return;
    say("renew event " + std::to_string(e), [&] {
      backend_->destroy_event(events_[e]);
      events_[e] = backend_->create_event();
    });
  }
  // Not during a capture: that was not measured.
  void destroy_graph() {
    if (graphs_.empty() || is_capturing()) return;
    BackendGraph* const graph = graphs_[below(graphs_.size())];
    std::erase(graphs_, graph);
    say("destroy graph", [&] { backend_->destroy_graph(graph); });
  }
  void end(BackendStream* stream) {
    say("end", [&] { graphs_.push_back(backend_->end_capture(stream)); });
  }
  // A graph writes the buffers of several streams, so it runs while nothing else does.
  void launch(std::size_t s, const std::string& on) {
    if (graphs_.empty()) return;
    BackendGraph* graph = graphs_[below(graphs_.size())];
    const bool alone = !is_capturing();
    if (!alone && backend_->capture_status(streams_[s]) == CaptureStatus::none) return;
    for (BackendStream* other : streams_) {
      if (alone) backend_->synchronize(other);
    }
    say("launch" + on, [&] { backend_->launch(graph, streams_[s]); });
    if (alone && below(8) == 0)
      backend_->destroy_graph(graph), std::erase(graphs_, graph);  // What runs goes on.
    if (alone) backend_->synchronize(streams_[s]);
  }
  void read(std::size_t i) {
    unsigned char bytes[kBytes];
    backend_->copy(streams_[i], bytes, buffers_[i], kBytes, CopyKind::device_to_host);
    backend_->synchronize(streams_[i]);
    lines_.push_back("memory");
    for (const unsigned char byte : bytes) lines_.back() += " " + std::to_string(byte);
  }
  template <class Call>
  void say(const std::string& what, Call call) {
    std::string line = what + ": " + code_of(call) + ";";
    for (BackendStream* stream : streams_)
      line += " " + std::to_string(static_cast<int>(backend_->capture_status(stream)));
    lines_.push_back(line);
  }

  std::unique_ptr<Backend> backend_;
  std::mt19937_64 random_;
  std::vector<BackendStream*> streams_;
  std::vector<BackendEvent*> events_;
  // Whether an event's last record was captured, and whether any call for it was external.
  std::array<bool, kStreams> captured_{}, external_{};
  BackendStream* extra_ = nullptr;  // Never has work.
  std::vector<void*> buffers_;
  std::vector<BackendGraph*> graphs_;
  void* spare_ = nullptr;
  std::vector<std::string> lines_;
};

// Up to the first line that differs.
inline std::string first_difference(const std::vector<std::string>& a,
                                    const std::vector<std::string>& b) {
  std::string before;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) return before + "  one device: " + a[i] + "\n  the other:  " + b[i];
    before += "  " + a[i] + "\n";
  }
  return a.size() == b.size() ? "" : "another number of lines";
}

}  // namespace lockstep::test
