// The record of what the simulator ran in the order of its schedule, beside what was submitted, for
// `replay --trace` and `--schedule`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/device/ledger.h"
#include "engine/device/observer.h"

namespace lockstep {

struct TraceStream {
  std::string name;
  int rank = 0;
};

struct TraceItem {
  int stream = 0;    // Inside a graph, the stream captured.
  std::string what;  // The op's name, "copy", "fill" or "release".
  StepLocation place;
  int launch = -1;          // Index into Trace::launches, -1 outside of graphs.
  std::int64_t bytes = 0;   // Of a copy or fill; 0 if not known.
  std::string tensor = {};  // What a copy moves, as a judge knows it; "" if not known.
};

struct TraceLaunch {
  int stream = 0;  // The stream of the launch.
  int graph = 0;
  int nth = 0;                // For this graph's launches.
  int first = -1, last = -1;  // Items, -1 where nothing of it ran.
};

// An edge between items of different streams: a record that was waited for, or one that is missing.
struct TraceFlow {
  int from = 0, to = 0;  // Items. A missing edge leads from what the program meant first, which may
                         // have run last.
  std::string name;      // "event 3", "missing edge"
  std::string detail;
};

struct Trace {
  std::vector<TraceStream> streams;
  std::vector<TraceItem> items;  // In order of execution.
  std::vector<TraceLaunch> launches;
  std::vector<TraceFlow> flows;
  std::string ended;  // Why the run stopped before its end, "" if it did not.
};

// One side of a hazard, as the checker names it. `launch` counts the launches of `graph`; both -1
// outside of graphs.
struct TracePoint {
  std::string stream, what;
  StepLocation place;
  int graph = -1, launch = -1;
  std::int64_t bytes = 0;  // Of a copy or fill; 0 for any.
};
// Draws "missing edge" between the items that match best. False where one of the two did not run.
bool add_missing_edge(Trace& trace, const TracePoint& earlier, const TracePoint& later,
                      const std::string& detail);

// Observes every call at the device. After the run it relates what was submitted to what ran.
class TraceRecorder : public Observer {
 public:
  Trace finish(const std::vector<SimStep>& ran) const;

  void on_call(const IssuedCall& call) override;

 private:
  // What a call says about its item.
  struct Asked {
    StepLocation place;
    std::int64_t bytes = 0;
    std::string tensor;
  };
  // Something that runs: the nth item of a stream, a node of a launch, or (node -1) a launch as a
  // whole.
  struct Work {
    int stream = -1, nth = -1;
    int launch = -1, node = -1;
  };
  struct Wait {
    Work recorded;
    int event;
  };
  // The last item of each stream, and the waits that its next work will have to do.
  struct Lane {
    std::vector<Work> last;  // One or none.
    std::vector<Wait> waits;
  };
  struct Flow {
    Work from, to;
    int event;
  };
  struct Launch {
    TraceLaunch what;
    std::vector<Asked> nodes;
  };

  void on(const CreateStreamCall&, const IssuedCall&);
  void on(const SubmitCall&, const IssuedCall& issued) { add_item(issued); }
  void on(const CopyCall&, const IssuedCall& issued) { add_item(issued); }
  void on(const FillCall&, const IssuedCall& issued) { add_item(issued); }
  void on(const RecordCall&, const IssuedCall&);
  void on(const WaitCall&, const IssuedCall&);
  void on(const BeginCaptureCall&, const IssuedCall& issued) { members_ = {issued.stream}; }
  void on(const EndCaptureCall&, const IssuedCall&) { leave_capture(); }
  void on(const AbortCaptureCall&, const IssuedCall&) { leave_capture(); }
  void on(const LaunchCall&, const IssuedCall&);
  void on(const auto&, const IssuedCall&) {}  // All other calls.

  bool is_captured(int stream) const { return members_.count(stream) > 0; }
  void leave_capture();
  static Asked asked_by(const IssuedCall& issued);
  void add_item(const IssuedCall& issued);
  void add_work(Lane& lane, const Work& work);
  void replay(const Ledger& ledger, int launch);

  std::vector<TraceStream> streams_;
  std::map<int, std::vector<Asked>> own_;  // For each stream, what is not in a graph.
  std::map<int, Lane> lanes_;
  std::map<int, Work> events_;  // The work before the latest record of each event.
  std::vector<Launch> launches_;
  std::map<int, int> launches_of_;  // For each graph.
  std::vector<Flow> flows_;
  std::set<int> members_, captured_events_;  // For the capture under way.
};

}  // namespace lockstep
