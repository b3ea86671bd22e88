#include "harness/report/trace.h"

#include <tuple>

#include "kernels/core/at.h"

namespace lockstep {

void TraceRecorder::on_call(const IssuedCall& issued) {
  std::visit([&](const auto& call) { on(call, issued); }, issued.call);
}

void TraceRecorder::on(const CreateStreamCall& created, const IssuedCall& issued) {
  if (std::ssize(streams_) <= issued.stream)
    streams_.resize(static_cast<std::size_t>(issued.stream) + 1);
  at(streams_, issued.stream) = {created.name, issued.place.rank};
}

void TraceRecorder::add_work(Lane& lane, const Work& work) {
  for (const Wait& wait : lane.waits) flows_.push_back({wait.recorded, work, wait.event});
  lane.waits.clear();
  lane.last = {work};
}

TraceRecorder::Asked TraceRecorder::asked_by(const IssuedCall& issued) {
  Asked asked{.place = issued.place, .bytes = 0, .tensor = {}};
  if (const auto* copy = issued.as<CopyCall>()) {
    asked.bytes = static_cast<std::int64_t>(copy->bytes);
    asked.tensor = copy->tensor;
  } else if (const auto* fill = issued.as<FillCall>()) {
    asked.bytes = static_cast<std::int64_t>(fill->bytes);
  }
  return asked;
}

// Captured calls run with each launch and come from the ledger then.
void TraceRecorder::add_item(const IssuedCall& issued) {
  if (is_captured(issued.stream)) return;
  std::vector<Asked>& own = own_[issued.stream];
  add_work(lanes_[issued.stream], {.stream = issued.stream, .nth = static_cast<int>(own.size())});
  own.push_back(asked_by(issued));
}

void TraceRecorder::on(const RecordCall& record, const IssuedCall& issued) {
  if (is_captured(issued.stream)) {
    if (!record.external) captured_events_.insert(record.event);
    return;
  }
  const Lane& lane = lanes_[issued.stream];
  events_.erase(record.event);
  if (!lane.last.empty()) events_[record.event] = lane.last.front();
}

void TraceRecorder::on(const WaitCall& wait, const IssuedCall& issued) {
  // It joins the capture.
  if (captured_events_.count(wait.event) > 0 && !wait.external) members_.insert(issued.stream);
  if (is_captured(issued.stream)) return;
  const auto recorded = events_.find(wait.event);
  if (recorded != events_.end())
    lanes_[issued.stream].waits.push_back({recorded->second, wait.event});
}

void TraceRecorder::leave_capture() {
  for (const int event : captured_events_) events_.erase(event);
  members_.clear();
  captured_events_.clear();
}

void TraceRecorder::on(const LaunchCall& call, const IssuedCall& issued) {
  const int launch = static_cast<int>(launches_.size());
  launches_.push_back(
      {{.stream = issued.stream, .graph = call.graph, .nth = launches_of_[call.graph]++}, {}});
  add_work(lanes_[issued.stream], {.launch = launch});
  replay(*call.captured, launch);
}

// Inside of a graph, records and waits are edges between its nodes; the external ones reach out of
// it.
void TraceRecorder::replay(const Ledger& ledger, int launch) {
  std::map<int, Lane> lanes;
  std::map<int, Work> events;
  std::vector<Asked>& nodes = at(launches_, launch).nodes;
  for (const IssuedCall& entry : ledger.entries()) {
    Lane& lane = lanes[entry.stream];
    if (const auto* record = entry.as<RecordCall>()) {
      std::map<int, Work>& known = record->external ? events_ : events;
      known.erase(record->event);
      if (!lane.last.empty()) known[record->event] = lane.last.front();
      if (record->external) nodes.push_back(asked_by(entry));  // A node, like an op.
    } else if (const auto* wait = entry.as<WaitCall>()) {
      const std::map<int, Work>& known = wait->external ? events_ : events;
      const auto recorded = known.find(wait->event);
      if (recorded != known.end()) lane.waits.push_back({recorded->second, wait->event});
      if (wait->external) nodes.push_back(asked_by(entry));
    } else {
      add_work(lane, {.launch = launch, .node = static_cast<int>(nodes.size())});
      nodes.push_back(asked_by(entry));
    }
  }
}

Trace TraceRecorder::finish(const std::vector<SimStep>& ran) const {
  Trace trace;
  trace.streams = streams_;
  for (const Launch& launch : launches_) trace.launches.push_back(launch.what);
  // By kind of work: (stream, nth, -1) and (launch, node, 0).
  std::map<std::tuple<int, int, int>, int> item_of;
  std::map<int, int> count;
  for (const SimStep& step : ran) {
    const int index = static_cast<int>(trace.items.size());
    TraceItem item{.stream = step.stream, .what = step.what, .place = {}, .launch = step.launch};
    const auto take = [&item](const std::vector<Asked>& all, int which) {
      if (which >= std::ssize(all)) return;
      const Asked& asked = at(all, which);
      item.place = asked.place, item.bytes = asked.bytes, item.tensor = asked.tensor;
    };
    if (step.launch >= 0 && step.launch < static_cast<int>(launches_.size())) {
      const std::size_t launch = step.launch;
      take(launches_[launch].nodes, step.node);
      item_of[{step.launch, step.node, 0}] = index;
      if (trace.launches[launch].first < 0) trace.launches[launch].first = index;
      trace.launches[launch].last = index;
    } else if (item.what != "release") {  // The end of memory is no call that is observed.
      const int nth = count[step.stream]++;
      const auto own = own_.find(step.stream);
      if (own != own_.end()) take(own->second, nth);
      item_of[{step.stream, nth, -1}] = index;
    }
    trace.items.push_back(std::move(item));
  }
  const auto find = [&](const Work& work, bool end) {
    if (work.launch >= 0 && work.node < 0) {
      const TraceLaunch& launch = at(trace.launches, work.launch);
      return end ? launch.last : launch.first;
    }
    const auto key = work.launch >= 0 ? std::tuple(work.launch, work.node, 0)
                                      : std::tuple(work.stream, work.nth, -1);
    const auto found = item_of.find(key);
    return found == item_of.end() ? -1 : found->second;
  };
  for (const Flow& flow : flows_) {
    const int from = find(flow.from, true), to = find(flow.to, false);
    if (from < 0 || to < 0) continue;
    const bool one_stream = at(trace.items, from).stream == at(trace.items, to).stream;
    if (!one_stream) trace.flows.push_back({from, to, "event " + std::to_string(flow.event), ""});
  }
  return trace;
}

namespace {

// The first item that is what the point says; -1 if there is none.
int find_item(const Trace& trace, const TracePoint& point) {
  const auto is_on = [&](const TraceItem& item) {
    const std::size_t index = item.stream;
    if (index >= trace.streams.size()) return false;
    const TraceStream& stream = trace.streams[index];
    return stream.name == point.stream && stream.rank == point.place.rank;
  };
  for (std::size_t i = 0; i < trace.items.size(); ++i) {
    const TraceItem& item = trace.items[i];
    const StepLocation &a = item.place, &b = point.place;
    if (item.what != point.what || !is_on(item)) continue;
    if (item.bytes > 0 && point.bytes > 0 && item.bytes != point.bytes) continue;
    if (a.layer != b.layer || a.microbatch != b.microbatch || std::string(a.part) != b.part)
      continue;
    if ((item.launch >= 0) != (point.graph >= 0)) continue;
    if (item.launch < 0 && a.step != b.step) continue;  // In a graph it is the step of the capture.
    if (item.launch >= 0) {
      const TraceLaunch& launch = at(trace.launches, item.launch);
      if (launch.graph != point.graph || launch.nth != point.launch) continue;
    }
    return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

bool add_missing_edge(Trace& trace, const TracePoint& earlier, const TracePoint& later,
                      const std::string& detail) {
  const int from = find_item(trace, earlier), to = find_item(trace, later);
  if (from < 0 || to < 0) return false;
  trace.flows.push_back({from, to, "missing edge", detail});
  return true;
}

}  // namespace lockstep
