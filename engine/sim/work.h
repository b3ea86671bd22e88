// Work that waits in the simulator's streams and graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/step_location.h"

namespace lockstep {

struct SimRun;
struct SimCapture;

// The completion of one record of an event, or of one launch. Until it is done, `stream` (and
// `run`, if the record is a node of a graph) holds the item that will complete it.
struct SimMark {
  bool done = false;
  BackendStream* stream = nullptr;
  std::int64_t ticket = 0;  // For the item in `stream`.
  SimRun* run = nullptr;
  int node = -1;
};
using SimMarkPtr = std::shared_ptr<SimMark>;

struct SimEvent {
  SimMarkPtr latest;                    // Null before the first record.
  std::shared_ptr<SimCapture> capture;  // Set if the last record was captured.
  std::vector<int> nodes;               // The nodes that the record stands for in the capture.
};

struct SimOp {
  Submission op;
  StepLocation place;  // Where it was submitted.
};
struct SimCopy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::shared_ptr<std::byte[]> staged;  // A pageable source, read at the call.
};
struct SimFill {
  void* to;
  std::uint8_t byte;
  std::size_t bytes;
};
struct SimRelease {  // The end of stream-ordered memory.
  void* memory;
};
struct SimCall {  // Only in graphs.
  const char* name;
  std::function<void()> run;
};
struct SimDelay {
  std::int64_t turns;
  std::int64_t due = -1;  // The turn when it ends, once it has begun. Unused in graphs.
};
struct SimRecord {
  SimMarkPtr mark;
};
struct SimWait {
  SimMarkPtr mark;
};
struct SimLaunch {
  std::shared_ptr<SimRun> run;
};
// In graphs only, since what they are bound to is known at the launch.
struct SimExternalRecord {
  std::shared_ptr<SimEvent> event;
};
struct SimExternalWait {
  std::shared_ptr<SimEvent> event;
};
using SimWork = std::variant<SimOp, SimCopy, SimFill, SimRelease, SimRecord, SimWait, SimLaunch,
                             SimExternalRecord, SimExternalWait, SimDelay, SimCall>;

struct SimNode {
  SimWork work;
  int lane;                 // The captured stream: its place among those of the capture.
  int stream;               // Its number, for the trace.
  int number;               // In order of capture, delays not counted.
  std::vector<int> before;  // Edges, to nodes of smaller index.
  std::vector<int> after;
};

struct SimGraph {
  std::vector<SimNode> nodes;
  int lanes = 0;
  bool external = false;  // Has external records or waits.
  int delays = 0;
  bool calls = false;  // Has calls of the host.
};

// One launch of a graph.
struct SimRun {
  std::shared_ptr<const SimGraph> graph;
  int step = -1;               // The launch is part of it,
  int microbatch = -1;         // and of this one; -1 for a graph of several.
  int number = 0;              // Among all launches, in order of the calls.
  std::vector<int> waits_for;  // For each node, the edges not yet met.
  std::vector<int> ready;      // Nodes whose edges are met, in order of capture.
  int left = 0;
  // Per node: what an external record completes, or an external wait is bound to.
  std::vector<SimMarkPtr> marks;
  SimMarkPtr previous;  // The launch of the same graph before this one: they do not overlap.
  SimMarkPtr finished;
  std::vector<std::uint64_t> priority;  // For each lane.
  // Per node, if there are delays: the time at which it ends once it has begun, else -1.
  std::vector<std::int64_t> due;
  std::vector<bool> needed_node;  // Where the schedule needs only some nodes; empty means none.
};

}  // namespace lockstep

// The backend's opaque handles.
struct lockstep::BackendStream {
  int id = 0;
  std::string name;
  std::deque<SimWork> queue;
  std::int64_t submitted = 0;  // The ticket of the last item in the queue.
  std::int64_t done = 0;       // The ticket of the last item that left it.
  std::int64_t needed = 0;     // The schedule needs everything up to this ticket.
  std::uint64_t priority = 0;
  bool destroyed = false;
  std::shared_ptr<SimCapture> capture;
  int lane = -1;
  std::vector<int> tail;  // The nodes that the next captured item follows.
};

struct lockstep::BackendEvent {
  std::shared_ptr<SimEvent> event = std::make_shared<SimEvent>();
};

struct lockstep::BackendGraph {
  std::shared_ptr<const SimGraph> graph;
  SimMarkPtr last_launch;
};
