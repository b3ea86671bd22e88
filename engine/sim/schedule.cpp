#include "engine/sim/schedule.h"

#include <algorithm>
#include <cstring>

#include "engine/sim/running_op.h"
#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

SimRun* launch_at_head(const BackendStream& stream) {
  if (stream.queue.empty()) return nullptr;
  const auto* launch = std::get_if<SimLaunch>(&stream.queue.front());
  return launch ? launch->run.get() : nullptr;
}

void complete_node(SimRun& run, int node) {
  run.ready.erase(std::lower_bound(run.ready.begin(), run.ready.end(), node));
  --run.left;
  for (const int next : at(run.graph->nodes, node).after) {
    if (--at(run.waits_for, next) > 0) continue;
    run.ready.insert(std::lower_bound(run.ready.begin(), run.ready.end(), next), next);
  }
}

template <class Kind>
bool is(const SimRun& run, int node) {
  return std::holds_alternative<Kind>(at(run.graph->nodes, node).work);
}
bool is_wait(const SimRun& run, int node) { return is<SimExternalWait>(run, node); }

}  // namespace

void SimSchedule::add(BackendStream* stream) {
  stream->priority = draw() | std::uint64_t{1} << 63;
  streams_.push_back(stream);
}

void SimSchedule::add_run(SimRun& run) {
  const auto& nodes = run.graph->nodes;
  run.number = launches_++;
  run.left = static_cast<int>(nodes.size());
  run.waits_for.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    run.waits_for[i] = static_cast<int>(nodes[i].before.size());
    if (run.waits_for[i] == 0) run.ready.push_back(static_cast<int>(i));
  }
  if (run.graph->delays > 0) run.due.assign(nodes.size(), -1);
  if (options_.policy != SimOptions::Policy::pct) return;
  for (int lane = 0; lane < run.graph->lanes; ++lane)
    run.priority.push_back(draw() | std::uint64_t{1} << 63);
}

void SimSchedule::submitted() {
  if (options_.policy == SimOptions::Policy::given) return follow();
  if (options_.policy != SimOptions::Policy::program) return;
  for (settle(); run_one(false);
       settle()) {  // A delay lets others overtake: time passes when the host waits.
  }
}

void SimSchedule::drain(BackendStream& stream, std::int64_t ticket) {
  const bool only_needed = wants_only_needed();
  if (stream.done < ticket) need(stream, ticket);
  for (settle(); stream.done < ticket; settle()) {
    require(step(only_needed), "what the host waits for can run");
  }
}

void SimSchedule::drain(SimMark& mark) {
  const bool only_needed = wants_only_needed();
  need(mark);
  for (settle(); !mark.done; settle()) {
    require(step(only_needed), "what the host waits for can run");
  }
}

void SimSchedule::drain_all() {
  for (settle(); step(false); settle()) {
  }
}

void SimSchedule::nudge(BackendStream& stream, std::int64_t ticket) {
  need(stream, ticket);
  step(wants_only_needed());
}

void SimSchedule::nudge(SimMark& mark) {
  need(mark);
  step(wants_only_needed());
}

void SimSchedule::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    next_due_ = INT64_MAX;
    for (BackendStream* stream : streams_) changed |= settle(*stream);
  }
  // A destroyed stream lives until its work is done.
  std::erase_if(streams_, [](const BackendStream* stream) {
    return stream->destroyed && stream->queue.empty();
  });
}

// Records, waits and delays of a running graph that can complete; true if there was one.
bool SimSchedule::settle_run(SimRun& run) {
  if (!run.graph->external && run.graph->delays == 0) return false;
  for (const int node : run.ready) {
    const std::size_t i = node;
    if (is<SimExternalRecord>(run, node)) {
      run.marks[i]->done = true;
    } else if (is_wait(run, node)) {
      if (run.marks[i] && !run.marks[i]->done) continue;
    } else if (const auto* delay = std::get_if<SimDelay>(&run.graph->nodes[i].work)) {
      if (!is_over(run.due[i], *delay)) continue;
    } else {
      continue;
    }
    complete_node(run, node);
    return true;
  }
  return false;
}

bool SimSchedule::is_over(std::int64_t& due, const SimDelay& delay) {
  if (options_.policy == SimOptions::Policy::given) return true;
  if (due < 0) due = turn_ + delay.turns;
  if (due > turn_) next_due_ = std::min(next_due_, due);
  return due <= turn_;
}

bool SimSchedule::settle(BackendStream& stream) {
  bool changed = false;
  while (!stream.queue.empty()) {
    SimWork& head = stream.queue.front();
    if (auto* record = std::get_if<SimRecord>(&head)) {
      record->mark->done = true;
    } else if (auto* wait = std::get_if<SimWait>(&head)) {
      if (!wait->mark->done) return changed;
    } else if (auto* delay = std::get_if<SimDelay>(&head)) {
      if (!is_over(delay->due, *delay)) return changed;
    } else if (auto* launch = std::get_if<SimLaunch>(&head)) {
      SimRun& run = *launch->run;
      if (run.previous && !run.previous->done) return changed;
      while (settle_run(run)) changed = true;
      if (run.left > 0) return changed;
      run.finished->done = true;
    } else {
      return changed;
    }
    stream.queue.pop_front();
    ++stream.done;
    changed = true;
  }
  return changed;
}

void SimSchedule::need(BackendStream& stream, std::int64_t ticket) {
  if (stream.needed >= ticket) return;
  const std::int64_t first = std::max(stream.needed, stream.done) + 1;
  stream.needed = ticket;
  for (std::int64_t t = first; t <= ticket; ++t) {
    SimWork& work = at(stream.queue, t - stream.done - 1);
    if (auto* wait = std::get_if<SimWait>(&work)) need(*wait->mark);
    if (auto* launch = std::get_if<SimLaunch>(&work)) need_marks_of(*launch->run);
  }
}

void SimSchedule::need(SimMark& mark) {
  if (mark.done) return;
  if (!mark.run) return need(*mark.stream, mark.ticket);
  need(*mark.stream, mark.ticket - 1);
  if (mark.run->previous) need(*mark.run->previous);
  need_node(*mark.run, mark.node);
}

void SimSchedule::need_marks_of(SimRun& run) {
  if (run.previous) need(*run.previous);
  for (std::size_t node = 0; node < run.marks.size(); ++node) {
    if (run.marks[node] && is_wait(run, static_cast<int>(node))) need(*run.marks[node]);
  }
}

// Each node is followed once: what it needs stays needed. Waits of graphs for each other have many
// ways back to one node.
void SimSchedule::need_node(SimRun& run, int node) {
  run.needed_node.resize(run.graph->nodes.size());
  std::vector<int> fresh;
  const auto follow = [&](int next) {
    if (!at(run.needed_node, next)) fresh.push_back(next);
    at(run.needed_node, next) = true;
  };
  follow(node);
  while (!fresh.empty()) {
    const int next = fresh.back();
    fresh.pop_back();
    for (const int before : at(run.graph->nodes, next).before) follow(before);
    if (is_wait(run, next) && at(run.marks, next)) need(*at(run.marks, next));
  }
}

// `lazy` never runs more than it must. `random` decides each time the host waits, so that it covers
// both ends.
bool SimSchedule::wants_only_needed() {
  switch (options_.policy) {
    case SimOptions::Policy::lazy:
      return true;
    case SimOptions::Policy::random:
      return below(2) == 0;
    default:
      return false;
  }
}

bool SimSchedule::step(bool only_needed) { return run_one(only_needed) || pass_time(); }

bool SimSchedule::pass_time() {
  if (next_due_ == INT64_MAX) return false;
  turn_ = next_due_;
  return true;
}

// ---- A schedule that is given -------------------------------------------------------------------

void SimSchedule::follow() {
  const std::vector<SimTurn>& turns = options_.given->turns;
  for (settle(); cursor_ < turns.size() && turns[cursor_].stream >= 0 && options_.given->followed;
       settle()) {
    find_units(false);
    const auto is_its_turn = [&](const Unit& unit) {
      if (unit.stream->id != turns[cursor_].stream) return false;
      if (unit.ready < 0) return turns[cursor_].lane < 0;
      const SimRun& run = *launch_at_head(*unit.stream);
      const int node = at(run.ready, unit.ready);
      return at(run.graph->nodes, node).lane == turns[cursor_].lane;
    };
    const auto found = std::find_if(units_.begin(), units_.end(), is_its_turn);
    if (found == units_.end()) return;  // Not submitted yet.
    run(*found);
    ++cursor_;
  }
}

void SimSchedule::host_acts() {
  if (options_.policy != SimOptions::Policy::given) return;
  follow();
  const std::vector<SimTurn>& turns = options_.given->turns;
  if (cursor_ < turns.size() && turns[cursor_].stream >= 0) options_.given->followed = false;
  if (cursor_ < turns.size()) ++cursor_;
  follow();
}

// ---- The next item ------------------------------------------------------------------------------

bool SimSchedule::run_one(bool only_needed) {
  find_units(only_needed);
  if (units_.empty()) return false;
  run(units_[pick()]);
  return true;
}

void SimSchedule::find_units(bool only_needed) {
  units_.clear();
  for (BackendStream* stream : streams_) {
    if (stream->queue.empty()) continue;
    const bool needed = !only_needed || stream->done < stream->needed;
    SimRun* run = launch_at_head(*stream);
    if (!run) {
      const SimWork& head = stream->queue.front();
      const bool blocked =
          std::holds_alternative<SimWait>(head) || std::holds_alternative<SimDelay>(head);
      if (needed && !blocked) units_.push_back({stream});
      continue;
    }
    if (run->previous && !run->previous->done) continue;
    for (std::size_t i = 0; i < run->ready.size(); ++i) {
      const int node = run->ready[i];
      if (is_wait(*run, node) || is<SimDelay>(*run, node)) continue;
      if (!needed && (run->needed_node.empty() || !at(run->needed_node, node))) continue;
      units_.push_back({stream, static_cast<int>(i)});
    }
  }
}

std::uint64_t& SimSchedule::priority(const Unit& unit) {
  if (unit.ready < 0) return unit.stream->priority;
  SimRun& run = *launch_at_head(*unit.stream);
  const int node = at(run.ready, unit.ready);
  return at(run.priority, at(run.graph->nodes, node).lane);
}

std::size_t SimSchedule::pick() {
  switch (options_.policy) {
    case SimOptions::Policy::program:
    case SimOptions::Policy::given:
      return 0;
    case SimOptions::Policy::random:
      return below(units_.size());
    case SimOptions::Policy::lazy: {  // The latest stream, and in a graph the stream that joined
                                      // last.
      const auto rank = [](const Unit& unit) {
        if (unit.ready < 0) return std::pair(unit.stream->id, 0);
        const SimRun& run = *launch_at_head(*unit.stream);
        const int node = at(run.ready, unit.ready);
        return std::pair(unit.stream->id, at(run.graph->nodes, node).lane);
      };
      std::size_t best = 0;
      for (std::size_t i = 1; i < units_.size(); ++i)
        best = rank(units_[i]) > rank(units_[best]) ? i : best;
      return best;
    }
    case SimOptions::Policy::pct: {
      std::size_t best = 0;
      for (std::size_t i = 1; i < units_.size(); ++i)
        best = priority(units_[i]) > priority(units_[best]) ? i : best;
      if (--until_change_ > 0) return best;
      plan_change();
      priority(units_[best]) = --lowest_;
      return best;
    }
  }
  return 0;
}

void SimSchedule::plan_change() {
  constexpr std::uint64_t kWindow = 1024;
  const bool never = options_.policy != SimOptions::Policy::pct || options_.depth <= 0;
  until_change_ = never ? INT64_MAX
                        : 1 + static_cast<std::int64_t>(below(
                                  2 * kWindow / static_cast<std::uint64_t>(options_.depth) + 1));
}

void SimSchedule::run(const Unit& unit) {
  ++items_run_;
  ++turn_;
  BackendStream& stream = *unit.stream;
  if (unit.ready < 0) {
    note({.stream = stream.id, .what = execute(stream.queue.front(), nullptr)});
    stream.queue.pop_front();
    ++stream.done;
    return;
  }
  SimRun& run = *launch_at_head(stream);
  const int node = at(run.ready, unit.ready);
  const SimNode& what = at(run.graph->nodes, node);
  complete_node(run, node);  // First: what the host is called for may throw.
  note({.stream = what.stream,
        .what = execute(what.work, &run),
        .launch = run.number,
        .node = what.number});
}

namespace {

class OpScope {
 public:
  OpScope(const RunningOp& op, int step) : op_(op) {
    op_.place.step = step;
    running_op = &op_;
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  ~OpScope() { running_op = nullptr; }

 private:
  RunningOp op_;
};

}  // namespace

const char* SimSchedule::execute(const SimWork& work, const SimRun* launched) {
  if (const auto* one = std::get_if<SimOp>(&work)) {
    const OpScope scope({one->op.type().name, one->place, launched != nullptr},
                        launched ? launched->step : one->place.step);
    one->op.run_on_host();
    if (options_.op_ran) {
      StepLocation place = running_op->place;
      if (launched && launched->microbatch >= 0) place.microbatch = launched->microbatch;
      options_.op_ran(one->op, place);
    }
    return one->op.type().name;
  }
  if (const auto* copy = std::get_if<SimCopy>(&work)) {
    const void* const from = copy->staged ? copy->staged.get() : copy->from;
    std::memmove(copy->to, from, copy->bytes);
    if (options_.copy_ran) options_.copy_ran(copy->to, from, copy->bytes);
    return "copy";
  }
  if (const auto* fill = std::get_if<SimFill>(&work)) {
    std::memset(fill->to, fill->byte, fill->bytes);
    return "fill";
  }
  if (const auto* call = std::get_if<SimCall>(&work)) {
    call->run();
    return call->name;
  }
  memory_.release(std::get<SimRelease>(work).memory);
  return "release";
}

void SimSchedule::note(const SimStep& step) {
  if (options_.trace) options_.trace->push_back(step);
}

// splitmix64.
std::uint64_t SimSchedule::draw() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace lockstep
