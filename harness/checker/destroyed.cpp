// What is destroyed while it may still be in use. CUDA lets launches, records and waits that are
// under way go on; that nothing depends on it is what is judged here. Destructors make these calls,
// so what is found is thrown by the next call that may.
#include "harness/checker/checker.h"

namespace lockstep {
namespace {

std::string numbered(const char* what, int number) {
  return std::string(what) + " " + std::to_string(number);
}

}  // namespace

void Checker::report_destroyed(const std::string& what, const std::string& detail) {
  if (stopped_) return;
  Touch destruction;
  destruction.work.name = "destruction";
  destruction.thread = host_;
  report(HazardKind::destroyed_in_use, destruction, std::nullopt, detail, what);
}

// The host must know that everything is over that `used` knows.
void Checker::require_over(const std::string& what, const std::string& use, const Clock& used) {
  const int behind = host().clock.first_behind(used);
  if (behind < 0) return;
  const std::string& before = at(threads_, behind).name;
  report_destroyed(what, "It is not ordered after " + use + ". Missing edge: " + before + " -> " +
                             host().name + ". Record an event on " + before + " after " + use +
                             ", and synchronise with it before " + what + " is destroyed.");
}

void Checker::on(const DestroyStreamCall&, const IssuedCall& issued) {
  const int number = thread_of(issued.stream);
  const Thread& thread = at(threads_, number);
  // What looks have put behind the program's work is over: they wait for it.
  if (thread.looked_at && host().clock.at(number) >= thread.program_time) return;
  require_over("stream " + thread.name, "its last work", thread.clock);
}

void Checker::on(const DestroyEventCall& call, const IssuedCall&) {
  const EventState& state = event(call.event);
  const std::string what = numbered("event", call.event) + " (" + state.name + ")";
  for (const auto& [graph, plan] : plans_) {
    if (plan.external_events.contains(call.event)) {
      report_destroyed(what,
                       numbered("Graph", graph) +
                           " records it or waits for it, and lives. Destroy the graph first.");
    }
  }
  require_over(what, "its last record and the waits for it", state.used);
  event(call.event) = {};
}

void Checker::on(const DestroyGraphCall& call, const IssuedCall&) {
  const auto found = plans_.find(call.graph);
  if (found == plans_.end()) return;
  const GraphPlan& plan = found->second;
  const std::string what = numbered("graph", call.graph);
  if (capture_ && capture_->host == host_) {
    report_destroyed(what, "A capture is under way on stream " + stream_name(capture_->origin) +
                               ". Destroy it before the capture begins or after it has ended.");
  }
  if (plan.launches > 0) {
    require_over(
        what,
        numbered("its replay", plan.launches - 1) + " on stream " + stream_name(plan.launched_on),
        plan.finished);
  }
  plans_.erase(found);
}

void Checker::on(const DestroyCommunicatorCall& call, const IssuedCall&) {
  for (const auto& [graph, plan] : plans_) {
    if (!plan.communicators.contains(call.ranks)) continue;
    report_destroyed(
        "a communicator",
        numbered("Graph", graph) + " holds calls of it, and lives. Destroy the graph first.");
  }
}

}  // namespace lockstep
