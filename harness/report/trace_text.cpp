#include "harness/report/trace_text.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <map>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr int kItem = 10, kGap = 1;  // Microseconds.

TraceStream stream_of(const Trace& trace, int stream) {
  const std::size_t index = stream;
  if (index < trace.streams.size()) return trace.streams[index];
  return {"stream " + std::to_string(stream)};
}

int ranks(const Trace& trace) {
  int last = 0;
  for (const TraceStream& stream : trace.streams) last = std::max(last, stream.rank);
  return last + 1;
}

// Every rank is a process to Perfetto.
int process_of_rank(int rank) { return rank + 1; }
int process(const Trace& trace, int stream) {
  return process_of_rank(stream_of(trace, stream).rank);
}

bool is_hazard(const TraceFlow& flow) { return flow.name == "missing edge"; }
// What the program meant first may run last where an edge is missing.
const char* program_order(const TraceFlow& flow, int item) {
  return item == flow.from ? "first" : "second";
}

// A stream's track, and below it that of the graphs launched on it.
int track(int stream) { return 2 * stream + 1; }
int graph_track(int stream) { return 2 * stream + 2; }

json::object named(const char* what, int process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

json::object slice(const std::string& name, const char* category, int process, int thread, int from,
                   int to, json::object arguments) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", process},
          {"tid", thread},
          {"ts", from * kItem},
          {"dur", (to - from + 1) * kItem - kGap},
          {"args", std::move(arguments)}};
}

json::object arguments_of(const Trace& trace, const TraceItem& item, int order) {
  json::object out{{"order", order}, {"rank", stream_of(trace, item.stream).rank}};
  const auto add = [&](const char* name, int value) {
    if (value >= 0) out[name] = value;
  };
  add("step", item.place.step);
  add("microbatch", item.place.microbatch);
  add("layer", item.place.layer);
  if (*item.place.part) out["part"] = item.place.part;
  if (item.launch >= 0) {
    const TraceLaunch& launch = at(trace.launches, item.launch);
    out["graph"] = launch.graph;
    out["launch"] = launch.nth;
  }
  if (!item.tensor.empty()) out["tensor"] = item.tensor;
  if (item.bytes > 0) out["bytes"] = item.bytes;
  return out;
}

// The missing edges of each item. Perfetto keeps no arguments of flows, so slices tell them too.
std::map<int, json::array> hazards_of(const Trace& trace) {
  std::map<int, json::array> out;
  for (const TraceFlow& flow : trace.flows) {
    if (!is_hazard(flow)) continue;
    for (const int item : {flow.from, flow.to}) {
      out[item].push_back({{"program_order", program_order(flow, item)}, {"detail", flow.detail}});
    }
  }
  return out;
}

// "copy qkv". The layer is told beside it, unless the tensor is another layer's.
std::string what_text(const TraceItem& item) {
  if (item.tensor.empty()) return item.what;
  const std::string own = "layers." + std::to_string(item.place.layer) + ".";
  return item.what + " " + item.tensor.substr(item.tensor.starts_with(own) ? own.size() : 0);
}

void add_tracks(const Trace& trace, const std::string& name, json::array& events) {
  const int count = ranks(trace);
  for (int rank = 0; rank < count; ++rank) {
    events.push_back(named("process_name", process_of_rank(rank), 0,
                           count == 1 ? "lockstep: " + name : "rank " + std::to_string(rank)));
  }
  for (std::size_t i = 0; i < trace.streams.size(); ++i) {
    const int stream = static_cast<int>(i);
    const std::string& own = trace.streams[i].name;
    const int of = process(trace, stream);
    events.push_back(named("thread_name", of, track(stream), own));
    bool launches = false;
    for (const TraceLaunch& launch : trace.launches)
      launches |= launch.stream == stream && launch.first >= 0;
    if (launches) {
      events.push_back(named("thread_name", of, graph_track(stream), own + ": graphs"));
    }
  }
}

// The start lies in the slice it leaves, the end in the one it leads to. Perfetto drops a flow that
// begins after its end, so that of a missing edge leads from what ran first.
void add_flow(const Trace& trace, const TraceFlow& flow, int id, json::array& events) {
  const auto point = [&](const char* phase, int item, int at) {
    const int stream = lockstep::at(trace.items, item).stream;
    json::object event{{"ph", phase},
                       {"name", flow.name},
                       {"cat", is_hazard(flow) ? "hazard" : "event"},
                       {"id", id},
                       {"pid", process(trace, stream)},
                       {"tid", track(stream)},
                       {"ts", at}};
    if (*phase == 'f') event["bp"] = "e";
    json::object arguments;
    if (is_hazard(flow)) arguments["program_order"] = program_order(flow, item);
    if (!flow.detail.empty()) arguments["detail"] = flow.detail;
    if (!arguments.empty()) event["args"] = std::move(arguments);
    events.push_back(std::move(event));
  };
  const auto [first, last] = std::minmax(flow.from, flow.to);
  point("s", first, first * kItem + kItem / 2);
  point("f", last, last * kItem + kItem / 2);
}

}  // namespace

std::string trace_json(const Trace& trace, const std::string& name) {
  json::array events;
  add_tracks(trace, name, events);
  std::map<int, json::array> hazards = hazards_of(trace);
  for (std::size_t i = 0; i < trace.items.size(); ++i) {
    const TraceItem& item = trace.items[i];
    const int order = static_cast<int>(i);
    const bool op = item.what != "copy" && item.what != "fill" && item.what != "release";
    json::object arguments = arguments_of(trace, item, order);
    const auto missing = hazards.find(order);
    if (missing != hazards.end()) arguments["missing_edges"] = std::move(missing->second);
    events.push_back(slice(item.what, op ? "op" : item.what.c_str(), process(trace, item.stream),
                           track(item.stream), order, order, std::move(arguments)));
  }
  for (const TraceLaunch& launch : trace.launches) {
    if (launch.first < 0) continue;
    events.push_back(slice("graph " + std::to_string(launch.graph), "graph",
                           process(trace, launch.stream), graph_track(launch.stream), launch.first,
                           launch.last,
                           {{"graph", launch.graph},
                            {"launch", launch.nth},
                            {"rank", stream_of(trace, launch.stream).rank}}));
  }
  int id = 0;
  for (const TraceFlow& flow : trace.flows) add_flow(trace, flow, ++id, events);
  json::object whole{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  whole["otherData"] = {{"scenario", name},
                        {"ended", trace.ended},
                        {"time", "10 us an item: the order of execution"}};
  return json::serialize(whole) + "\n";
}

std::string schedule_text(const Trace& trace) {
  const bool several = ranks(trace) > 1;
  std::string out;
  for (std::size_t i = 0; i < trace.items.size(); ++i) {
    const TraceItem& item = trace.items[i];
    const TraceStream stream = stream_of(trace, item.stream);
    const std::string rank = several ? "rank " + std::to_string(stream.rank) + "  " : "";
    char line[160];
    std::snprintf(line, sizeof line, "%6zu  %s%-12s %-28s", i, rank.c_str(), stream.name.c_str(),
                  what_text(item).c_str());
    std::string text = line;
    const auto add = [&](const char* name, int value) {
      if (value >= 0) text += " " + std::string(name) + " " + std::to_string(value);
    };
    add("step", item.place.step);
    add("microbatch", item.place.microbatch);
    add("layer", item.place.layer);
    if (*item.place.part) text += " " + std::string(item.place.part);
    if (item.launch >= 0) {
      const TraceLaunch& launch = at(trace.launches, item.launch);
      text += " (graph " + std::to_string(launch.graph) + ", launch " + std::to_string(launch.nth) +
              ")";
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  if (!trace.ended.empty()) out += "ended: " + trace.ended + "\n";
  return out;
}

}  // namespace lockstep
