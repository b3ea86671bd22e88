#include "harness/checker/checker.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/train/trainer.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Its box begins at 0 until the allocation is known.
Touch touch_of(const CheckedOperand& operand, const Work& work, int thread, std::uint64_t time) {
  const OperandBytes& bytes = operand.bytes;
  return {.box = box(0, bytes.rows, bytes.row_bytes, bytes.pitch_bytes),
          .time = time,
          .thread = thread,
          .mode = bytes.access,
          .operand = operand.operand,
          .name = bytes.name,
          .work = work};
}

HazardKind kind_of(const Touch& earlier, const Touch& later) {
  if (!writes(earlier.mode)) return HazardKind::write_after_read;
  return reads(later.mode) ? HazardKind::read_after_write : HazardKind::write_after_write;
}

// A transport of rank threads: how its calls wait for those of peers is the transport's affair.
constexpr std::string_view kPeerHasWritten = "peer has written", kCallIsOver = "call is over";
bool is_of_transport(const std::string& event) {
  return event == kPeerHasWritten || event == "peer has read" || event == kCallIsOver ||
         event == "peer has sent" || event == "peer has received";
}
// Whether copies or exchanges up to a record are waited for together. What one of them has left is
// recorded beside that.
bool ends_group(const std::string& event) { return !is_of_transport(event) && event != "bin left"; }

}  // namespace

Checker::Checker(CheckerOptions options) : options_(std::move(options)) {
  threads_.push_back({"the host", -1, {}});
}

std::vector<std::string> Checker::mutations() {
  return {"columns-taken-for-whole-rows",
          "external-records-are-lost",
          "graphs-run-in-the-order-captured",
          "host-orders-nothing",
          "poison-is-a-value",
          "ranks-share-one-host",
          "readers-are-forgotten",
          "streams-run-before-their-host"};
}

class Checker::Looking {
 public:
  Looking(Checker& checker, const IssuedCall& issued) : checker_(checker) {
    if (!looks(issued.place) || issued.as<RankCall>() != nullptr) return;
    checker.looked_for_ = checker.host_;
    std::vector<Thread>& threads = checker.threads_;
    const auto [entry, fresh] =
        checker.lookers_.try_emplace(checker.host_, static_cast<int>(threads.size()));
    if (fresh) threads.push_back({checker.host().name, -1, {}});
    at(threads, entry->second).clock.join(checker.host().clock);
    checker.host_ = entry->second;
  }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;
  // The reads of the look end before the program goes on.
  ~Looking() {
    if (checker_.looked_for_ < 0) return;
    const int looker = std::exchange(checker_.host_, std::exchange(checker_.looked_for_, -1));
    checker_.host().clock.reach(looker, at(checker_.threads_, looker).clock.at(looker));
  }

 private:
  Checker& checker_;
};

void Checker::on_call(const IssuedCall& issued) {
  const Looking looking(*this, issued);
  std::visit([&](const auto& call) { on(call, issued); }, issued.call);
}

// ---- Threads ------------------------------------------------------------------------------------

void Checker::on(const RankCall& call, const IssuedCall&) {
  const int rank = call.rank;
  Thread& starter = threads_[kStarter];
  if (mutated("ranks-share-one-host")) return;
  if (rank < 0) {
    for (auto& [number, host] : hosts_) {
      starter.clock.join(at(threads_, host.thread).clock);
      host = {host.thread};
    }
    meets_ = meets_of_looks_ = {};
    host_ = kStarter;
    return;
  }
  const auto [entry, fresh] = hosts_.try_emplace(rank, Host{static_cast<int>(threads_.size())});
  Host& host = entry->second;
  if (fresh) threads_.push_back({"the host of rank " + std::to_string(rank), -1, {}});
  if (!host.runs) at(threads_, host.thread).clock.join(threads_[kStarter].clock);
  host.runs = true;
  host_ = host.thread;
}

// No rank enters a barrier before all ranks have left the one before the last, so two clocks that
// alternate suffice.
void Checker::on(const BarrierCall& barrier, const IssuedCall&) {
  const bool looks = looked_for_ >= 0;
  const int of = looks ? looked_for_ : host_;
  const auto entry = std::find_if(hosts_.begin(), hosts_.end(),
                                  [&](const auto& h) { return h.second.thread == of; });
  if (entry == hosts_.end()) return;
  std::size_t& number = looks ? entry->second.meetings_of_looks : entry->second.meetings;
  Clock& meeting = (looks ? meets_of_looks_ : meets_)[number % 2];
  if (!barrier.goes_on) return meeting.join(host().clock);
  host().clock.join(meeting);
  ++number;
}

void Checker::on(const CreateStreamCall& created, const IssuedCall& issued) {
  at(threads_, thread_of(issued.stream)).name = created.name;
}

int Checker::thread_of(int stream) {
  if (stream >= std::ssize(stream_threads_)) stream_threads_.resize(stream + 1, -1);
  int& thread = at(stream_threads_, stream);
  if (thread < 0) {
    thread = static_cast<int>(threads_.size());
    threads_.push_back({std::to_string(stream), stream, {}});
  }
  return thread;
}

// Launches on one stream follow each other, so their side lanes may share threads.
int Checker::lane_thread(int stream, int lane, int captured) {
  if (lane == 0) return thread_of(stream);
  const auto [entry, fresh] =
      lane_threads_.try_emplace({stream, lane}, static_cast<int>(threads_.size()));
  if (fresh) threads_.push_back({"", captured, {}});
  Thread& thread = at(threads_, entry->second);
  thread.name = stream_name(captured) + " (in a graph launched on " + stream_name(stream) + ")";
  thread.stream = captured;
  return entry->second;
}

const std::string& Checker::stream_name(int stream) const {
  const bool met =
      stream >= 0 && stream < std::ssize(stream_threads_) && at(stream_threads_, stream) >= 0;
  return at(threads_, met ? at(stream_threads_, stream) : kStarter).name;
}

int Checker::enter(int stream) {
  const int thread = thread_of(stream);
  if (mutated("streams-run-before-their-host")) return thread;
  Thread& entered = at(threads_, thread);
  const Clock& known = host().clock;
  if (entered.host != host_ || entered.host_changes != known.changes()) {
    entered.clock.join(known);
    entered.host = host_;
    entered.host_changes = known.changes();
  }
  if (options_.needed) options_.needed->enters(thread, known);
  return thread;
}

// ---- Edges --------------------------------------------------------------------------------------

Checker::EventState& Checker::event(int id) {
  if (id >= std::ssize(events_)) events_.resize(id + 1);
  return at(events_, id);
}

bool Checker::use(const Edge& edge, int recorder) {
  if (options_.notes_edges) {
    EdgeUse& use = edges_[edge];
    use.recorder = recorder;
    ++use.calls;
  }
  return !options_.dropped.contains(edge);
}

void Checker::on(const RecordCall& record_call, const IssuedCall& issued) {
  if (captures(issued.stream)) {
    if (record_call.external) return;  // Its turn comes at the launch.
    event(record_call.event).in_capture = true;
    capture_->events.insert(record_call.event);
    return;
  }
  const int thread = enter(issued.stream);
  record(record_call.event, issued.stream, at(threads_, thread).clock);
  if (options_.needed == nullptr) return;
  const std::string& name = event(record_call.event).name;
  if (name == kPeerHasWritten)
    options_.needed->begins_call(thread, issued.place.rank, at(threads_, thread).clock);
  if (is_of_transport(name)) options_.needed->records_for_peers(record_call.event, thread);
  if (ends_group(name)) options_.needed->ends_group(thread);
}

void Checker::record(int id, int stream, const Clock& clock) {
  EventState& state = event(id);
  state.recorded = true;
  state.in_capture = false;
  state.stream = stream;
  state.clock = clock;
  if (looked_for_ < 0) state.used.join(clock);
}

void Checker::wait(Clock& clock, int id, int waiter, const EventState& state) {
  if (!state.recorded) return;  // Nothing to wait for.
  const Edge edge{waiter < 0 ? Edge::Kind::synchronize_event : Edge::Kind::wait, id, waiter};
  if (use(edge, state.stream)) clock.join(state.clock);
}

void Checker::on(const WaitCall& call, const IssuedCall& issued) {
  if (call.external || captures(issued.stream)) return;
  if (capture_ && capture_->events.contains(call.event)) {
    capture_->streams.insert(issued.stream);
    return;
  }
  EventState& state = event(call.event);
  if (state.in_capture) return;
  Thread& waiter = at(threads_, enter(issued.stream));
  wait(waiter.clock, call.event, issued.stream, state);
  if (looked_for_ < 0) state.used.join(waiter.clock);
  waiter.looked_at |= looked_for_ >= 0;
  if (options_.needed && is_of_transport(state.name))
    options_.needed->awaits_peers(call.event, thread_of(issued.stream));
}

void Checker::synchronize(int id, int stream) {
  if (id >= 0) {
    const EventState& state = event(id);
    if (!state.in_capture) wait(host().clock, id, -1, state);
    return;
  }
  if (mutated("host-orders-nothing")) return;
  // Nothing is put on the stream, so that what this host knows is not passed on to other ranks'
  // work there.
  const Clock& clock = at(threads_, thread_of(stream)).clock;
  if (use({Edge::Kind::synchronize_stream, stream, -1}, stream)) host().clock.join(clock);
}

// ---- Work ---------------------------------------------------------------------------------------

void Checker::on(const SubmitCall& call, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  const int thread = enter(issued.stream);
  if (stopped_) return;
  const Work work{.name = call.op.type().name, .place = issued.place};
  const std::uint64_t time = begin_work(thread);
  call.op.operands(operands_);
  int number = 0;
  for (const OperandBytes& bytes : operands_) {
    CheckedOperand operand{bytes, number++};
    access(operand, work, thread, time);
  }
  end_work(thread, issued.stream, work);
}

void Checker::on(const CopyCall& copy, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  std::array operands = copy_operands(copy);
  const int thread = enter(issued.stream);
  perform(thread, issued.stream,
          {.name = "copy", .place = issued.place, .bytes = static_cast<std::int64_t>(copy.bytes)},
          operands);
  // A copy to pageable memory returns when it is done.
  if (copy.kind == CopyKind::device_to_host && !memory_.live_at(copy.to)) {
    host().clock.join(at(threads_, thread).clock);
  }
}

void Checker::on(const FillCall& fill, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  CheckedOperand operand = fill_operand(fill.to, fill.bytes);
  const auto size = static_cast<std::int64_t>(fill.bytes);
  perform(enter(issued.stream), issued.stream,
          {.name = "fill", .place = issued.place, .bytes = size}, {&operand, 1});
}

void Checker::on(const HostAccessCall& call, const IssuedCall& issued) {
  const auto size = static_cast<std::int64_t>(call.bytes);
  const Access access = call.writes ? Access::out : Access::in;
  CheckedOperand operand{
      {access, const_cast<void*>(call.memory), 1, size, size}, 0, -1, /*may_be_pageable=*/true};
  perform(host_, -1, {.name = call.writes ? "write" : "read", .place = issued.place, .bytes = size},
          {&operand, 1});
}

void Checker::perform(int thread, int stream, const Work& work,
                      std::span<CheckedOperand> operands) {
  if (stopped_) return;
  const std::uint64_t time = begin_work(thread);
  for (CheckedOperand& operand : operands) access(operand, work, thread, time);
  end_work(thread, stream, work);
}

std::uint64_t Checker::begin_work(int thread) {
  touches_.clear();
  allocations_.clear();
  Thread& performer = at(threads_, thread);
  const std::uint64_t time = performer.clock.tick(thread);
  performer.looked_at = looked_for_ >= 0;
  if (looked_for_ < 0) performer.program_time = time;
  return time;
}

void Checker::access(CheckedOperand& operand, const Work& work, int thread, std::uint64_t time) {
  Touch& touch = touches_.emplace_back(touch_of(operand, work, thread, time));
  Allocation* allocation = touch.box.is_empty() ? nullptr : locate(operand, touch);
  if (!allocation) return touches_.pop_back();
  touch.allocation = operand.allocation = allocation->id;
  touch.box.base = static_cast<const std::byte*>(operand.bytes.base) - allocation->base;
  if (mutated("columns-taken-for-whole-rows"))
    touch.box = box(touch.box.base, 1, touch.box.end() - touch.box.base, 0);
  allocations_.push_back(allocation);
  allocation->shadow.prefetch();
  ++checked_;
}

void Checker::end_work(int thread, int stream, const Work& work) {
  for (std::size_t i = 0; i < touches_.size(); ++i) judge(touches_[i], *allocations_[i]);
  judge_overlaps(touches_);
  stop_if_found();
  const Clock& clock = at(threads_, thread).clock;
  const bool poisons = is_poison(work) && !mutated("poison-is-a-value");
  for (std::size_t i = 0; i < touches_.size(); ++i) {
    const Touch& touch = touches_[i];
    Allocation& allocation = *allocations_[i];
    allocation.shadow.add(touch, clock);
    if (touch.mode == Access::out && !allocation.undefined.is_empty())
      allocation.undefined.erase(touch.box);
    if (touch.mode == Access::scratch) allocation.undefined.set(touch.box, work);
    if (poisons) allocation.undefined.set(touch.box, work);
  }
  if (options_.needed == nullptr) return;
  const std::string& name = stream_name(stream);
  const Lane lane = stream < 0 ? Lane::host : lane_named(name);
  options_.needed->performs({thread, lane, name, work}, touches_, clock);
}

// Null when there is nothing to check any further: pageable memory of the host, or a hazard that
// was reported.
Allocation* Checker::locate(const CheckedOperand& operand, const Touch& touch) {
  if (operand.allocation >= 0) {
    Allocation& captured = memory_[operand.allocation];
    if (captured.live) return &captured;
  } else if (Allocation* const live = memory_.live_at(operand.bytes.base)) {
    const std::int64_t first = static_cast<const std::byte*>(operand.bytes.base) - live->base;
    if (first + touch.box.end() <= live->bytes) return live;
  } else if (operand.may_be_pageable) {
    return nullptr;
  }
  report_location(operand, touch);
  return nullptr;
}

void Checker::judge(const Touch& touch, const Allocation& allocation) {
  if (reads(touch.mode) && !allocation.undefined.is_empty()) {
    if (const auto cause = allocation.undefined.first_in(touch.box))
      report_undefined(touch, *cause);
  }
  const Clock& clock = at(threads_, touch.thread).clock;
  if (allocation.shadow.all_complete(touch, clock)) return;
  for (const Touch& earlier : allocation.shadow.unordered(touch, clock)) {
    if (mutated("readers-are-forgotten") && !writes(earlier.mode)) continue;
    report(kind_of(earlier, touch), touch, earlier, missing_edge(touch, earlier));
  }
}

void Checker::judge_overlaps(const std::vector<Touch>& touches) {
  // Mostly each operand has an allocation of its own, as one bit for each shows.
  std::uint64_t met = 0;
  bool meet = false;
  for (const Touch& touch : touches) {
    const std::uint64_t bit = std::uint64_t{1} << (touch.allocation % 64);
    meet |= (met & bit) != 0;
    met |= bit;
  }
  if (!meet) return;
  for (std::size_t i = 0; i < touches.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Touch &a = touches[i], &b = touches[j];
      if (a.allocation != b.allocation || !(writes(a.mode) || writes(b.mode)) ||
          !overlap(a.box, b.box))
        continue;
      report(HazardKind::overlap, a, b,
             "An op reads and writes its operands in any order: give each memory of its own.");
    }
  }
}

// ---- Memory -------------------------------------------------------------------------------------

void Checker::on(const AllocateCall& call, const IssuedCall&) {
  memory_.allocate(call.memory, call.bytes, call.pinned);
}

// Called by destructors, so what is found here is thrown by the next call that may.
void Checker::on(const ReleaseCall& call, const IssuedCall&) {
  Allocation* allocation = memory_.live_at(call.memory);
  if (!allocation) return;
  if (!stopped_) {
    const Touch touch{.box = box(0, 1, allocation->bytes, allocation->bytes),
                      .thread = host_,
                      .allocation = allocation->id,
                      .mode = Access::out,
                      .work = {.name = "release", .place = {}, .bytes = allocation->bytes}};
    for (const Touch& earlier : allocation->shadow.unordered(touch, host().clock)) {
      if (looks(earlier.work.place)) continue;  // The program need not wait for it.
      report(HazardKind::use_after_free, touch, earlier, missing_edge(touch, earlier));
    }
  }
  memory_.release(*allocation);
}

// ---- Graphs -------------------------------------------------------------------------------------

void Checker::on(const BeginCaptureCall&, const IssuedCall& issued) {
  capture_ = Capture{issued.stream, host_, {issued.stream}, {}};
}

void Checker::on(const EndCaptureCall& call, const IssuedCall& issued) {
  GraphPlan plan = plan_of(issued.stream, *call.captured);
  capture_.reset();
  captured_calls_[issued.place.rank].push_back(std::ssize(call.captured->entries()));
  check_addresses(call.graph, plan);
  plans_.insert_or_assign(call.graph, std::move(plan));
}

// Every address in the graph lies in memory that lives now. From here on it must be that
// generation.
void Checker::check_addresses(int graph, GraphPlan& plan) {
  if (stopped_) return;
  for (GraphItem& item : plan.items) {
    item.work.graph = graph;
    for (CheckedOperand& operand : item.operands) {
      const Touch touch = touch_of(operand, item.work, thread_of(item.stream), 0);
      if (touch.box.is_empty()) continue;
      if (const Allocation* allocation = locate(operand, touch))
        operand.allocation = allocation->id;
    }
  }
  stop_if_found();
}

void Checker::on(const LaunchCall& call, const IssuedCall& issued) {
  const auto found = plans_.find(call.graph);
  if (stopped_ || captures(issued.stream) || found == plans_.end()) return;
  enter(issued.stream);
  ++launches_;
  launch(found->second, call.graph, issued.stream, issued.place);
}

void Checker::launch(GraphPlan& plan, int graph, int stream, const StepLocation& place) {
  const auto clock = [this](int thread) -> Clock& { return at(threads_, thread).clock; };
  const bool in_order = mutated("graphs-run-in-the-order-captured");
  std::vector<int> threads;
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    threads.push_back(lane_thread(stream, in_order ? 0 : static_cast<int>(lane), plan.lanes[lane]));
  }
  clock(threads[0]).join(plan.finished);
  for (std::size_t lane = 1; lane < threads.size(); ++lane)
    clock(threads[lane]).join(clock(threads[0]));

  if (options_.needed) options_.needed->launches(graph, threads, place.rank, clock(threads[0]));
  std::map<int, EventState> inside, external;
  for (GraphItem& item : plan.items) {
    const int thread = at(threads, item.lane);
    if (item.kind == GraphItem::Kind::record) {
      EventState& state = (item.external ? external : inside)[item.event];
      state.recorded = true;
      state.stream = item.lane == 0 ? stream : item.stream;
      state.clock = clock(thread);
      if (options_.needed && ends_group(event(item.event).name))
        options_.needed->ends_group(thread);
    } else if (item.kind == GraphItem::Kind::wait) {
      if (options_.without_turns && event(item.event).name == kCallIsOver) continue;
      wait(clock(thread), item.event, item.stream,
           item.external ? event(item.event) : inside[item.event]);
    } else {
      Work work = item.work;
      work.place.step = place.step;
      work.launch = plan.launches;
      perform(thread, item.stream, work, item.operands);
    }
  }
  for (const int thread : threads) clock(threads[0]).join(clock(thread));
  if (options_.needed) options_.needed->launched(graph, threads);
  plan.finished = clock(threads[0]);
  plan.launched_on = stream;
  ++plan.launches;
  // Whoever waits from now on waits for the records in here.
  if (mutated("external-records-are-lost")) return;
  for (const auto& [id, state] : external) record(id, state.stream, state.clock);
}

}  // namespace lockstep
