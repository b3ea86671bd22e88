// Writes down a run as a Program, from the calls at the device. The order it notes is that of
// docs/hazards.md, kept here a second time, as edges between items instead of clocks: the checker
// is tested against it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>

#include "harness/checker/call_log.h"
#include "harness/checker/edge.h"
#include "harness/checker/graph_edges.h"
#include "harness/checker/live_blocks.h"
#include "harness/explore/atoms.h"
#include "harness/explore/program.h"
#include "kernels/core/at.h"

namespace lockstep {

class ProgramRecorder : public Observer {
 public:
  // `dropped`: edges to do without.
  // After `kMost` items nothing more is noted: the beginning of a program is a program.
  static constexpr std::size_t kMost = 200'000;
  explicit ProgramRecorder(std::set<Edge> dropped = {});
  Program finish() &&;

  void on_call(const IssuedCall& call) override;

 private:
  void on(const CreateStreamCall&, const IssuedCall&);
  void on(const SubmitCall&, const IssuedCall&);
  void on(const CopyCall&, const IssuedCall&);
  void on(const FillCall&, const IssuedCall&);
  void on(const HostAccessCall&, const IssuedCall&);
  void on(const RecordCall&, const IssuedCall&);
  void on(const WaitCall&, const IssuedCall&);
  void on(const BeginCaptureCall&, const IssuedCall& issued) {
    capture_ = Capture{{issued.stream}, {}};
  }
  void on(const EndCaptureCall&, const IssuedCall&);
  void on(const AbortCaptureCall&, const IssuedCall&) { capture_.reset(); }
  void on(const LaunchCall&, const IssuedCall&);
  void on(const SyncCall& sync, const IssuedCall& issued) {
    synchronize(sync.event, issued.stream);
  }
  void on(const QueryCall& query, const IssuedCall& issued) {
    synchronize(query.event, issued.stream);
  }
  void on(const AllocateCall&, const IssuedCall&);
  void on(const ReleaseCall&, const IssuedCall&);
  void on(const auto&, const IssuedCall&) {}  // All other calls.
  void synchronize(int event, int stream);

  static constexpr int kHost = 0;
  // Per thread, the last item that is known to be over, or -1.
  class Frontier {
   public:
    int at(int thread) const;
    void raise(int thread, int item);
    void join(const Frontier& other);

   private:
    std::vector<int> items_;
  };
  struct Thread {
    Frontier known;    // What its next item follows.
    Frontier implied;  // What its last item followed.
  };
  struct EventState {
    bool recorded = false, in_capture = false;
    Frontier known;
  };
  struct Touched {
    int allocation;
    Box box;
    Access access;
  };
  struct Capture {
    std::set<int> streams, events;
  };
  struct Graph {
    GraphPlan plan;
    Frontier finished;
    int launches = 0;
  };

  Thread& thread(int index) { return at(threads_, index); }
  int thread_of(int stream);
  int lane_thread(int stream, int lane, int captured);
  int enter(int stream);
  bool is_full() const { return program_.items.size() >= kMost; }
  bool captures(int stream) const { return capture_ && capture_->streams.contains(stream); }
  bool keeps(Edge::Kind kind, int awaited, int waiter) const {
    return !dropped_.contains({kind, awaited, waiter});
  }
  void host_item(const char* name);
  void add(int thread, const Work& work, std::span<const CheckedOperand> operands, bool observed);
  void add_edges(int thread);
  std::uint64_t identity_of(const Work& work, int thread, std::size_t first_touch);

  std::set<Edge> dropped_;
  Program program_;
  std::vector<Thread> threads_;
  std::vector<Frontier> frontiers_;       // For each item, what it comes after.
  std::vector<std::size_t> first_touch_;  // For each item.
  std::vector<Touched> touched_;
  std::vector<Atoms> allocations_;
  LiveBlocks<int, -1> live_;
  std::map<int, int> stream_threads_;
  std::map<std::pair<int, int>, int> lane_threads_;
  std::map<int, EventState> events_;
  std::map<int, Graph> graphs_;
  std::optional<Capture> capture_;
  // The number of items of a thread with the same identity so far.
  std::map<std::uint64_t, int> ordinals_;
};

// The program of a run that was logged.
Program program_of(const CallLog& log, const std::set<Edge>& dropped = {});

}  // namespace lockstep
