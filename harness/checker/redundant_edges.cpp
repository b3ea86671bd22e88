#include "harness/checker/redundant_edges.h"

namespace lockstep {
namespace {

bool holds_without(const CallLog& log, const std::set<Edge>& dropped) {
  Checker checker({.stop = false, .dropped = dropped});
  log.tell(checker);
  return checker.hazards().empty();
}

std::string edge_text(const Checker& checker, const Edge& edge, const EdgeUse& use) {
  const std::string calls =
      " (" + std::to_string(use.calls) + (use.calls == 1 ? " call)" : " calls)");
  const std::string& waiter = checker.stream_name(edge.waiter);
  switch (edge.kind) {
    case Edge::Kind::wait:
    case Edge::Kind::synchronize_event:
      return waiter + " waits for event " + std::to_string(edge.awaited) + " of " +
             checker.stream_name(use.recorder) + calls;
    case Edge::Kind::synchronize_stream:
      return waiter + " waits for all of " + checker.stream_name(edge.awaited) + calls;
  }
  return "";
}

}  // namespace

std::vector<EdgeVerdict> judge_edges(const CallLog& log) {
  Checker all({.stop = false, .notes_edges = true, .dropped = {}});
  log.tell(all);
  std::vector<EdgeVerdict> list;
  std::set<Edge> dropped;
  for (const auto& [edge, use] : all.edges()) {
    EdgeVerdict one{.edge = edge, .use = use, .text = edge_text(all, edge, use)};
    one.redundant = holds_without(log, {edge});
    if (one.redundant) {
      dropped.insert(edge);
      one.together = holds_without(log, dropped);
      if (!one.together) dropped.erase(edge);
    }
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<std::string> redundant_edges(const CallLog& log) {
  std::vector<std::string> lines;
  for (const EdgeVerdict& one : judge_edges(log)) {
    if (one.redundant)
      lines.push_back(one.text + (one.together ? "" : "; needed when those above are dropped too"));
  }
  return lines;
}

}  // namespace lockstep
