// The judge of order: vector clocks over every call at the device door, and shadow memory by byte range. It sees the
// host's calls only, so a missing edge shows on every run, on either device, whatever the timing.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>

#include "harness/checker/edge.h"
#include "harness/checker/graph_edges.h"
#include "harness/checker/hazard.h"

namespace lockstep {

struct CheckerOptions {
  bool stop = true;           // Throw EngineViolation (judge "hazard") before a hazardous op, so that it does not run.
  std::string mutation = "";  // An error of the checker's own, planted: a name of Checker::mutations().
  std::set<Edge> dropped;     // Edges to do without, to see whether they are needed.
};

class Checker : public Observer {
 public:
  explicit Checker(CheckerOptions options = {});
  static std::vector<std::string> mutations();

  std::int64_t launches() const { return launches_; }  // Of graphs.
  // How many calls each captured graph recorded, in order of capture, by the stream that captured: one a rank.
  const std::map<int, std::vector<std::int64_t>>& captured_calls() const { return captured_calls_; }
  std::int64_t checked() const { return checked_; }                // Accesses judged.
  const std::vector<Hazard>& hazards() const { return hazards_; }  // In the order of the calls, not de-duplicated.
  const std::map<Edge, EdgeUse>& edges() const { return edges_; }  // Those that the run used.
  const std::string& stream_name(int stream) const;                // "the host" for -1.
  void throw_found() const;  // EngineViolation if there are hazards: after a run, for what its clean-up showed.

  void on_host(int rank) override;
  void on_meet(bool goes_on) override;
  void on_create_stream(int stream, const char* name) override;
  void on_submit(int stream, const Submission&, const Place&) override;
  void on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind, const Place&) override;
  void on_fill(int stream, void* to, std::size_t bytes, const Place&) override;
  void on_host_write(const void* memory, std::size_t bytes, const Place&) override;
  void on_host_read(const void* memory, std::size_t bytes, const Place&) override;
  void on_record(int stream, int event, bool external) override;
  void on_wait(int stream, int event, bool external) override;
  void on_begin_capture(int stream) override;
  void on_end_capture(int stream, int graph, const Ledger&) override;
  void on_abort_capture(int stream) override;
  void on_launch(int stream, int graph, const Ledger&, const Place&) override;
  void on_synchronize_stream(int stream) override;
  void on_synchronize_event(int event) override;
  void on_found_finished_stream(int stream) override { on_synchronize_stream(stream); }
  void on_found_finished_event(int event) override { on_synchronize_event(event); }
  void on_allocate(void* memory, std::size_t bytes, bool pinned) override;
  void on_release(void* memory, bool pinned) override;

 private:
  struct Thread {
    std::string name;
    int stream = -1;  // None: a host.
    Clock clock;
  };
  struct Host {
    int thread;
    bool runs = false;
    std::size_t meetings = 0;
  };
  struct EventState {
    bool recorded = false;
    bool in_capture = false;  // Recorded in a capture last: it means nothing outside.
    int stream = -1;
    Clock clock;
  };
  struct Capture {
    int origin;
    std::set<int> streams, events;
  };
  static constexpr int kStarter = 0;  // The host of the process: of the only rank, or of who starts the others.

  bool mutated(const char* name) const { return options_.mutation == name; }
  int thread_of(int stream);
  Thread& host() { return threads_[static_cast<std::size_t>(host_)]; }
  int lane_thread(int stream, int lane, int captured);
  EventState& event(int id);
  bool captures(int stream) const { return capture_ && capture_->streams.contains(stream); }
  int enter(int stream);  // The stream's thread, which now follows all that the host did.
  bool use(const Edge& edge, int recorder);
  void wait(Clock& clock, int event_id, int waiter, const EventState& state);

  void perform(int thread, const Work& work, std::vector<CheckedOperand>& operands);
  Allocation* locate(const CheckedOperand& operand, const Touch& touch);
  void judge(const Touch& touch, const Allocation& allocation);
  void judge_overlaps(const std::vector<Touch>& touches);
  void report(HazardKind kind, const Touch& later, const std::optional<Touch>& earlier, std::string memory,
              std::string detail);
  void stop_if_found();
  std::string missing_edge(const Touch& later, const Touch& earlier);

  void check_addresses(int graph, GraphPlan& plan);
  void launch(GraphPlan& plan, int graph, int stream, const Place& place);

  CheckerOptions options_;
  std::vector<Thread> threads_;
  int host_ = kStarter;         // The thread whose calls these are.
  std::map<int, Host> hosts_;   // By rank.
  std::array<Clock, 2> meets_;  // By parity: a host may come to the next before all have gone on from the last.
  std::map<int, int> stream_threads_;
  std::map<std::pair<int, int>, int> lane_threads_;
  std::map<int, EventState> events_;
  std::optional<Capture> capture_;
  std::map<int, GraphPlan> plans_;
  CheckedMemory memory_;
  std::vector<Hazard> hazards_;
  std::map<Edge, EdgeUse> edges_;
  std::int64_t checked_ = 0, launches_ = 0;
  std::map<int, std::vector<std::int64_t>> captured_calls_;
  bool stopped_ = false;  // A hazard was thrown: what follows is clean-up.
};

}  // namespace lockstep
