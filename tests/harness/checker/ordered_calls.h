// Random programs over the device dispatch: ops, copies, fills, the host's own accesses, events,
// captures and launches, some of it ordered and some not.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/diagnostics/poison.h"
#include "kernels/ops/accumulate.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {

class OrderedCalls {
 public:
  // `care` of 4: how often the program orders what it does, so that most of it, or little, is
  // right. Several `ranks`: the calls are those of a host each, which take turns and meet.
  OrderedCalls(Observer& observer, std::uint64_t seed, std::int64_t care, int ranks = 1)
      : device_(open_sim({.policy = Policy::program, .trace = nullptr}), &observer),
        random_(seed),
        care_(care),
        ranks_(ranks) {
    for (const char* name : {"a", "b", "c"}) streams_.emplace_back(device_, name);
    for (int i = 0; i < 3; ++i) events_.emplace_back(device_);
    for (int i = 0; i < 2; ++i) buffers_.emplace_back(device_, kSide * kSide * sizeof(float));
    pinned_.emplace(device_, kSide * kSide * sizeof(float));
    const bool start_defined = one_in(2);
    for (const DeviceBuffer& b : buffers_) {
      if (start_defined) streams_[0].fill(b.data(), 0, b.bytes());
    }
    if (start_defined) device_.host_writes(pinned_->data(), pinned_->bytes());
    if (start_defined) streams_[0].synchronize();
  }
  void run(int calls) {
    for (int i = 0; i < calls; ++i) {
      if (ranks_ > 1 && (i == 0 || one_in(3))) device_.turn_of(static_cast<int>(below(ranks_)));
      if (ranks_ > 1 && one_in(10)) meet();
      call();
    }
    if (ranks_ > 1) device_.turn_of(-1);
    for (const Stream& stream : streams_) stream.synchronize();
  }

 private:
  static constexpr std::int64_t kSide = 6;
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class T>
  T& any(std::vector<T>& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }
  void next_label() { device_.place.layer = ++label_; }

  void call() {
    const Stream& stream = any(streams_);
    const Event& event = any(events_);
    const std::int64_t what = below(20);
    if (what < 8) {
      work(stream);
      return order(stream, event);
    }
    if (what < 11) return stream.record(event);
    if (what < 14) return stream.wait(event);
    if (what == 14) return stream.synchronize();
    if (what == 15) return event.synchronize();
    if (what == 16) return static_cast<void>(one_in(2) ? stream.finished() : event.finished());
    if (what == 17) return host();
    if (what == 18 && graphs_.size() < 4) return capture();
    if (graphs_.empty()) return;
    stream.launch(any(graphs_));
    order(stream, event);
  }
  void order(const Stream& stream, const Event& event) {
    if (below(4) >= care_) return;
    stream.record(event);
    for (const Stream& other : streams_) other.wait(event);
  }
  // All come, then all go on, in any order; who has gone on may call before the others have.
  void meet() {
    for (const bool goes_on : {false, true}) {
      for (const int rank : in_any_order()) {
        device_.turn_of(rank);
        device_.meets(goes_on);
        if (goes_on && one_in(2)) call();
      }
    }
  }
  std::vector<int> in_any_order() {
    std::vector<int> ranks(static_cast<std::size_t>(ranks_));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    return ranks;
  }
  void work(const Stream& stream) {
    next_label();
    const std::int64_t from = below(2);
    float* a = static_cast<float*>(buffers_[static_cast<std::size_t>(from)].data());
    float* b = static_cast<float*>(buffers_[static_cast<std::size_t>(1 - from)].data());
    const std::int64_t what = below(6), first = below(kSide * kSide),
                       count = 1 + below(kSide * kSide - first);
    const auto bytes = static_cast<std::size_t>(4 * count);
    float* pinned = static_cast<float*>(pinned_->data());
    if (what == 0) return poison_or_fill(stream, a + first, bytes);
    if (what == 1) return stream.copy(b + first, a + first, bytes, CopyKind::device_to_device);
    if (what == 2) return stream.copy(pinned + first, a + first, bytes, CopyKind::device_to_host);
    if (what == 3) return stream.copy(a + first, pinned + first, bytes, CopyKind::host_to_device);
    const std::int64_t rows = 1 + below(kSide), cols = 1 + below(kSide);
    stream.submit(AccumulateGradient{.g = view(a, rows, cols), .acc = view(b, rows, cols)});
  }
  void poison_or_fill(const Stream& stream, float* at, std::size_t bytes) {
    if (one_in(4)) return stream.submit(poison(at, static_cast<std::int64_t>(bytes)));
    stream.fill(at, 0, bytes);
  }
  // Any box of a buffer; the rows may be a multiple of its side apart.
  Tensor<float> view(float* base, std::int64_t rows, std::int64_t cols) {
    const std::int64_t step = rows <= kSide / 2 && one_in(2) ? 2 : 1;
    const std::int64_t row = below(kSide - step * (rows - 1)), column = below(kSide - cols + 1);
    return {base + row * kSide + column, rows, cols, step * kSide};
  }
  void host() {
    for (const Stream& stream : streams_) {
      if (below(4) < care_) stream.synchronize();
    }
    next_label();
    const std::int64_t first = below(kSide * kSide), count = 1 + below(kSide * kSide - first);
    float* at = static_cast<float*>(pinned_->data()) + first;
    one_in(2) ? device_.host_writes(at, static_cast<std::size_t>(4 * count))
              : device_.host_reads(at, static_cast<std::size_t>(4 * count));
  }
  // A fork, work on both sides with waits between them, external records and waits, and the join.
  void capture() {
    const std::int64_t first = below(3);
    const Stream &origin = streams_[static_cast<std::size_t>(first)],
                 &side = streams_[static_cast<std::size_t>((first + 1) % 3)];
    const Event inside(device_), back(device_), again(device_);
    origin.begin_capture();
    if (one_in(2)) work(origin);
    origin.record(inside);
    side.wait(inside);
    const std::int64_t calls = below(5);
    for (std::int64_t i = 0; i < calls; ++i) {
      const Stream &one = one_in(2) ? origin : side, &other = &one == &origin ? side : origin;
      if (one_in(4)) {
        one.record(again);
        other.wait(again);
      } else if (one_in(4)) {
        one_in(2) ? one.record(any(events_), true) : one.wait(any(events_), true);
      } else {
        work(one);
      }
    }
    side.record(back);
    origin.wait(back);
    if (one_in(2)) work(origin);
    graphs_.push_back(origin.end_capture());
  }

  Device device_;
  std::mt19937_64 random_;
  std::int64_t care_;
  int ranks_;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::vector<DeviceBuffer> buffers_;
  std::optional<PinnedBuffer> pinned_;
  std::vector<Graph> graphs_;
  int label_ = 0;
};

}  // namespace lockstep::test
