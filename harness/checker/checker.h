// The happens-before checker: vector clocks over every call at the device, and shadow memory by
// byte range. It sees only the host's calls, so it reports a missing edge on every run and either
// device, regardless of timing.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "engine/device/observer.h"
#include "harness/checker/edge.h"
#include "harness/checker/graph_edges.h"
#include "harness/checker/hazard.h"
#include "harness/checker/needed_order.h"
#include "kernels/core/at.h"

namespace lockstep {

struct CheckerOptions {
  bool stop = true;  // Throw EngineViolation (judge "hazard") before a hazardous op, so that it
                     // does not run.
  // An error of the checker's own, planted: a name of Checker::mutations().
  std::string mutation = "";
  bool notes_edges = false;       // Count the calls of each edge, for edges().
  std::set<Edge> dropped;         // Edges to do without, to see whether they are needed.
  NeededOrder* needed = nullptr;  // Told of the same run, to see which of its order is needed.
  // Calls of ranks in a graph have no common order: over shared memory a host takes its turn in
  // each, which hides whether anybody asked for the order. For `needed` alone: what is found is no
  // hazard.
  bool without_turns = false;
};

class Checker : public Observer {
 public:
  explicit Checker(CheckerOptions options = {});
  static std::vector<std::string> mutations();

  std::int64_t launches() const { return launches_; }  // For graphs.
  // Returns the number of calls that each captured graph recorded, in order of capture, keyed by
  // the rank of the run.
  const std::map<int, std::vector<std::int64_t>>& captured_calls() const { return captured_calls_; }
  std::int64_t checked() const { return checked_; }  // Accesses judged.
  // In the order of the calls, not de-duplicated.
  const std::vector<Hazard>& hazards() const { return hazards_; }
  const std::map<Edge, EdgeUse>& edges() const { return edges_; }  // With notes_edges.
  const std::string& stream_name(int stream) const;                // "the host" for -1.
  // Throws EngineViolation if there are hazards, with the first that the program made if there is
  // one; called after a run for hazards of its clean-up, and for those that only a look met.
  void throw_found() const;
  bool looked_too_early() const { return std::ranges::any_of(hazards_, is_look); }

  void on_call(const IssuedCall& call) override;

 private:
  void on(const RankCall&, const IssuedCall&);
  void on(const BarrierCall&, const IssuedCall&);
  void on(const CreateStreamCall&, const IssuedCall&);
  void on(const CreateEventCall& created, const IssuedCall&) {
    event(created.event).name = created.name;
  }
  void on(const CreateCommunicatorCall&, const IssuedCall&) {}
  void on(const SubmitCall&, const IssuedCall&);
  void on(const CopyCall&, const IssuedCall&);
  void on(const FillCall&, const IssuedCall&);
  void on(const ExchangeCall&, const IssuedCall&) {}  // Observers are told of its effects instead.
  void on(const HostAccessCall&, const IssuedCall&);
  void on(const RecordCall&, const IssuedCall&);
  void on(const WaitCall&, const IssuedCall&);
  void on(const BeginCaptureCall&, const IssuedCall&);
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
  void on(const DestroyStreamCall&, const IssuedCall&);
  void on(const DestroyEventCall&, const IssuedCall&);
  void on(const DestroyGraphCall&, const IssuedCall&);
  void on(const DestroyCommunicatorCall&, const IssuedCall&);
  void synchronize(int event, int stream);

  struct Thread {
    std::string name;
    int stream = -1;  // None for a host.
    Clock clock;
    std::uint64_t program_time = 0;  // The program's last work here.
    bool looked_at = false;          // A look has put work or a wait behind it.
    // The host whose clock was last joined, and changes() of that clock then.
    int host = -1;
    std::uint64_t host_changes = 0;
  };
  struct Host {
    int thread;
    bool runs = false;
    std::size_t meetings = 0, meetings_of_looks = 0;
  };
  // Two clocks that alternate: a host may enter the next barrier before all have left the last one.
  using Meetings = std::array<Clock, 2>;
  // Makes calls of a look a thread of its own while it exists.
  class Looking;
  struct EventState {
    bool recorded = false;
    bool in_capture = false;  // Recorded last in a capture, so it has no meaning outside.
    int stream = -1;
    Clock clock;
    std::string name = "event";
    Clock used;  // Its records and the waits for it are over when all this is.
  };
  struct Capture {
    int origin, host;
    std::set<int> streams, events;
  };
  // The host thread of the process: the only rank's, or the one that starts the others.
  static constexpr int kStarter = 0;

  bool mutated(const char* name) const {
    return !options_.mutation.empty() && options_.mutation == name;
  }
  int thread_of(int stream);
  Thread& host() { return at(threads_, host_); }
  int lane_thread(int stream, int lane, int captured);
  EventState& event(int id);
  bool captures(int stream) const { return capture_ && capture_->streams.contains(stream); }
  int enter(
      int stream);  // Returns the stream's thread, ordered after everything that the host did.
  bool use(const Edge& edge, int recorder);
  void wait(Clock& clock, int event_id, int waiter, const EventState& state);
  void record(int event_id, int stream, const Clock& clock);  // Outside of graphs, or external.

  // `stream`: the one that the work was put on, or captured on; -1 for the host.
  void perform(int thread, int stream, const Work& work, std::span<CheckedOperand> operands);
  // These are its three parts. begin_work() returns the time of the work; access() finds the memory
  // of an operand; end_work() judges all accesses and makes them the history of their memory.
  std::uint64_t begin_work(int thread);
  void access(CheckedOperand& operand, const Work& work, int thread, std::uint64_t time);
  void end_work(int thread, int stream, const Work& work);
  Allocation* locate(const CheckedOperand& operand, const Touch& touch);
  void judge(const Touch& touch, const Allocation& allocation);
  void judge_overlaps(const std::vector<Touch>& touches);
  // `memory`: "" stands for the bytes that `later` touches.
  void report(HazardKind kind, const Touch& later, const std::optional<Touch>& earlier,
              std::string detail, std::string memory = "");
  void report_undefined(const Touch& touch, const Undefined::Cause& cause);
  void report_location(const CheckedOperand& operand, const Touch& touch);
  void report_destroyed(const std::string& what, const std::string& detail);
  void require_over(const std::string& what, const std::string& use, const Clock& used);
  void stop_if_found();
  std::string missing_edge(const Touch& later, const Touch& earlier);
  // The first event whose record comes after `earlier`; -1 if there is none, or where the two are
  // of one replay.
  int event_after(const Touch& earlier, const Touch& later) const;

  void check_addresses(int graph, GraphPlan& plan);
  void launch(GraphPlan& plan, int graph, int stream, const StepLocation& place);

  CheckerOptions options_;
  std::vector<Thread> threads_;
  int host_ = kStarter;        // The thread that makes the current calls.
  std::map<int, Host> hosts_;  // By rank.
  // Each host has a second thread, which looks. It knows what the host knows, and the host learns
  // nothing of what it waits for: without judges the program would not have waited.
  std::map<int, int> lookers_;  // By the host's thread.
  int looked_for_ = -1;         // The host whose look makes the current call; -1: none.
  Meetings meets_, meets_of_looks_;
  std::vector<int> stream_threads_;  // By stream; -1: not met.
  std::map<std::pair<int, int>, int> lane_threads_;
  std::vector<EventState> events_;  // By event.
  std::optional<Capture> capture_;
  std::map<int, GraphPlan> plans_;
  CheckedMemory memory_;
  // The operands and accesses of the current work. They are kept, so that a call allocates nothing.
  std::vector<OperandBytes> operands_;
  std::vector<Touch> touches_;
  std::vector<Allocation*> allocations_;  // The memory of each access.
  std::vector<Hazard> hazards_;
  std::map<Edge, EdgeUse> edges_;
  std::int64_t checked_ = 0, launches_ = 0;
  std::map<int, std::vector<std::int64_t>> captured_calls_;
  bool stopped_ = false;  // A hazard was thrown, and the following calls are clean-up.
};

}  // namespace lockstep
