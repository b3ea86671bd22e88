#include "harness/explore/recorder.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "harness/explore/mix.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

std::uint64_t hash_text(std::uint64_t hash, const char* text) {
  // FNV-1a.
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

// The hash of numbers in their order; none waits for another.
std::uint64_t hash_of(std::initializer_list<std::int64_t> numbers) {
  std::uint64_t hash = 0, place = 0;
  for (const std::int64_t number : numbers) {
    hash += scramble(static_cast<std::uint64_t>(number) + (place += 0x9e3779b97f4a7c15u));
  }
  return hash;
}

}  // namespace

ProgramRecorder::ProgramRecorder(std::set<Edge> dropped)
    : dropped_(std::move(dropped)), threads_(1) {
  program_.threads = {{"the host"}};
}

void ProgramRecorder::on_call(const IssuedCall& issued) {
  std::visit([&](const auto& call) { on(call, issued); }, issued.call);
}

// ---- Who comes after whom -----------------------------------------------------------------------

int ProgramRecorder::Frontier::at(int thread) const {
  const std::size_t k = thread;
  return k < items_.size() ? items_[k] : -1;
}

void ProgramRecorder::Frontier::raise(int thread, int item) {
  const std::size_t k = thread;
  if (items_.size() <= k) items_.resize(k + 1, -1);
  items_[k] = std::max(items_[k], item);
}

void ProgramRecorder::Frontier::join(const Frontier& other) {
  for (std::size_t k = 0; k < other.items_.size(); ++k) raise(static_cast<int>(k), other.items_[k]);
}

void ProgramRecorder::on(const CreateStreamCall& created, const IssuedCall& issued) {
  at(program_.threads, thread_of(issued.stream)).name = created.name;
}

int ProgramRecorder::thread_of(int stream) {
  const auto [entry, fresh] =
      stream_threads_.try_emplace(stream, static_cast<int>(threads_.size()));
  if (fresh) {
    threads_.emplace_back();
    program_.threads.push_back({std::to_string(stream), stream});
  }
  return entry->second;
}

// Launches on one stream follow each other, so their side lanes may share threads.
int ProgramRecorder::lane_thread(int stream, int lane, int captured) {
  if (lane == 0) return thread_of(stream);
  const auto [entry, fresh] =
      lane_threads_.try_emplace({stream, lane}, static_cast<int>(threads_.size()));
  if (fresh) {
    threads_.emplace_back();
    const auto name = [this](int s) { return at(program_.threads, thread_of(s)).name; };
    program_.threads.push_back({name(captured) + " in graphs on " + name(stream), stream, lane});
  }
  return entry->second;
}

int ProgramRecorder::enter(int stream) {
  const int index = thread_of(stream);
  thread(index).known.join(thread(kHost).known);
  return index;
}

// One edge to each thread that the item newly comes after, but for those that another of these
// edges implies.
void ProgramRecorder::add_edges(int index) {
  Thread& own = thread(index);
  const int count = static_cast<int>(threads_.size());
  const auto fresh = [&](int t) { return t != index && own.known.at(t) > own.implied.at(t); };
  for (int t = 0; t < count; ++t) {
    if (!fresh(t)) continue;
    bool implied = false;
    for (int u = 0; u < count && !implied; ++u) {
      implied = u != t && fresh(u) && at(frontiers_, own.known.at(u)).at(t) >= own.known.at(t);
    }
    if (!implied) program_.before.push_back(own.known.at(t));
  }
}

void ProgramRecorder::on(const RecordCall& record, const IssuedCall& issued) {
  EventState& state = events_[record.event];
  if (captures(issued.stream)) {
    if (record.external) return;  // Its turn comes at the launch.
    state.in_capture = true;
    capture_->events.insert(record.event);
    return;
  }
  state = {true, false, thread(enter(issued.stream)).known};
}

void ProgramRecorder::on(const WaitCall& wait, const IssuedCall& issued) {
  if (wait.external || captures(issued.stream)) return;
  if (capture_ && capture_->events.contains(wait.event)) {
    capture_->streams.insert(issued.stream);
    return;
  }
  const EventState& state = events_[wait.event];
  const int index = enter(issued.stream);
  if (state.in_capture || !keeps(Edge::Kind::wait, wait.event, issued.stream)) return;
  thread(index).known.join(state.known);
}

void ProgramRecorder::synchronize(int event, int stream) {
  if (event >= 0) {
    const EventState& state = events_[event];
    if (!state.in_capture && keeps(Edge::Kind::synchronize_event, event, -1))
      thread(kHost).known.join(state.known);
  } else {
    const Frontier& known = thread(enter(stream)).known;
    if (keeps(Edge::Kind::synchronize_stream, stream, -1)) thread(kHost).known.join(known);
  }
  host_item("synchronize");
}

// ---- Items --------------------------------------------------------------------------------------

void ProgramRecorder::host_item(const char* name) {
  add(kHost, {.name = name, .place = {}}, {}, false);
}

void ProgramRecorder::on(const SubmitCall& call, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  add(enter(issued.stream), {.name = call.op.type().name, .place = issued.place},
      op_operands(call.op), false);
}

void ProgramRecorder::on(const CopyCall& copy, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  // A copy to pageable memory is complete when the call returns.
  const bool observed = copy.kind == CopyKind::device_to_host && live_.at(copy.to) < 0;
  const int index = enter(issued.stream);
  add(index,
      {.name = "copy", .place = issued.place, .bytes = static_cast<std::int64_t>(copy.bytes)},
      copy_operands(copy), observed);
  if (!observed) return;
  thread(kHost).known.join(thread(index).known);
  host_item("synchronize");
}

void ProgramRecorder::on(const FillCall& fill, const IssuedCall& issued) {
  if (captures(issued.stream)) return;
  add(enter(issued.stream),
      {.name = "fill", .place = issued.place, .bytes = static_cast<std::int64_t>(fill.bytes)},
      std::array{fill_operand(fill.to, fill.bytes)}, false);
}

void ProgramRecorder::on(const HostAccessCall& call, const IssuedCall& issued) {
  std::array operands{fill_operand(const_cast<void*>(call.memory), call.bytes)};
  if (!call.writes) operands[0].bytes.access = Access::in;
  const char* const name = call.writes ? "write" : "read";
  add(kHost, {.name = name, .place = issued.place, .bytes = static_cast<std::int64_t>(call.bytes)},
      operands, !call.writes);
}

void ProgramRecorder::add(int index, const Work& work, std::span<const CheckedOperand> operands,
                          bool observed) {
  if (is_full()) return;
  const int item = static_cast<int>(program_.items.size());
  first_touch_.push_back(touched_.size());
  for (const CheckedOperand& operand : operands) {
    const OperandBytes& b = operand.bytes;
    Box bytes = box(0, b.rows, b.row_bytes, b.pitch_bytes);
    const int allocation = bytes.is_empty() ? -1 : live_.at(b.base);
    if (allocation < 0) continue;  // The host's pageable memory.
    Atoms& memory = at(allocations_, allocation);
    bytes.base = static_cast<const std::byte*>(b.base) - memory.base;
    memory.add(bytes);
    touched_.push_back({allocation, bytes, b.access});
  }
  const int before = static_cast<int>(program_.before.size());
  add_edges(index);
  program_.items.push_back({.work = work,
                            .thread = index,
                            .identity = identity_of(work, index, first_touch_.back()),
                            .observed = observed,
                            .before = before});
  Thread& own = thread(index);
  own.known.raise(index, item);
  own.implied = own.known;
  frontiers_.push_back(own.known);
}

// Two equal calls on one stream are told apart, since a fill's byte and an op's scalars are not
// looked at; and so are the streams where nothing is read, since what is written then comes from
// outside.
std::uint64_t ProgramRecorder::identity_of(const Work& work, int index, std::size_t first_touch) {
  std::uint64_t hash = hash_text(hash_text(0xcbf29ce484222325u, work.name), work.place.part);
  hash = mix(hash, hash_of({work.place.step, work.place.microbatch, work.place.layer, work.bytes}));
  bool reads_memory = false;
  for (std::size_t i = first_touch; i < touched_.size(); ++i) {
    const Touched& t = touched_[i];
    reads_memory |= reads(t.access);
    hash = mix(hash, hash_of({t.allocation, t.box.base, t.box.rows, t.box.width, t.box.pitch,
                              static_cast<std::int64_t>(t.access)}));
  }
  if (!reads_memory) hash = mix(hash, static_cast<std::uint64_t>(index));
  return mix(hash,
             static_cast<std::uint64_t>(ordinals_[mix(hash, static_cast<std::uint64_t>(index))]++));
}

// ---- Memory -------------------------------------------------------------------------------------

void ProgramRecorder::on(const AllocateCall& call, const IssuedCall&) {
  live_.add(call.memory, call.bytes, static_cast<int>(allocations_.size()));
  allocations_.emplace_back(static_cast<const std::byte*>(call.memory),
                            static_cast<std::int64_t>(call.bytes));
}

// Freed memory counts as written, as far as everybody else is concerned.
void ProgramRecorder::on(const ReleaseCall& call, const IssuedCall&) {
  void* const memory = call.memory;
  const int released = live_.at(memory);
  if (released < 0) return;
  const std::int64_t bytes = at(allocations_, released).bytes;
  add(kHost, {.name = "release", .place = {}, .bytes = bytes},
      std::array{fill_operand(memory, bytes)}, false);
  live_.remove(memory);
}

// ---- Graphs -------------------------------------------------------------------------------------

void ProgramRecorder::on(const EndCaptureCall& call, const IssuedCall& issued) {
  graphs_[call.graph] = {plan_of(issued.stream, *call.captured), {}, 0};
  capture_.reset();
}

void ProgramRecorder::on(const LaunchCall& call, const IssuedCall& issued) {
  const int stream = issued.stream, id = call.graph;
  const auto found = graphs_.find(id);
  if (captures(stream) || found == graphs_.end()) return;
  Graph& graph = found->second;
  enter(stream);
  std::vector<int> threads;
  for (std::size_t lane = 0; lane < graph.plan.lanes.size(); ++lane) {
    threads.push_back(lane_thread(stream, static_cast<int>(lane), graph.plan.lanes[lane]));
  }
  Frontier& origin = thread(threads[0]).known;
  origin.join(graph.finished);
  for (std::size_t lane = 1; lane < threads.size(); ++lane)
    thread(threads[lane]).known.join(origin);

  std::map<int, EventState> inside, external;
  for (const GraphItem& item : graph.plan.items) {
    const int index = at(threads, item.lane);
    if (item.kind == GraphItem::Kind::record) {
      (item.external ? external : inside)[item.event] = {true, false, thread(index).known};
    } else if (item.kind == GraphItem::Kind::wait) {
      if (!keeps(Edge::Kind::wait, item.event, item.stream)) continue;
      thread(index).known.join((item.external ? events_ : inside)[item.event].known);
    } else {
      Work work = item.work;
      work.graph = id;
      work.launch = graph.launches;
      work.place.step = issued.place.step;
      add(index, work, item.operands, false);
    }
  }
  for (const int index : threads) thread(threads[0]).known.join(thread(index).known);
  graph.finished = thread(threads[0]).known;
  ++graph.launches;
  for (auto& [event, state] : external) events_[event] = std::move(state);
}

// ---- The program --------------------------------------------------------------------------------

Program ProgramRecorder::finish() && {
  for (Atoms& memory : allocations_) program_.atoms = memory.cut(program_.atoms);
  first_touch_.push_back(touched_.size());
  program_.items.push_back({.work = {}, .before = static_cast<int>(program_.before.size())});
  for (std::size_t i = 0; i < program_.items.size(); ++i) {
    program_.items[i].reads = static_cast<int>(program_.reads.size());
    program_.items[i].writes = static_cast<int>(program_.writes.size());
    for (std::size_t k = first_touch_[i]; i + 1 < program_.items.size() && k < first_touch_[i + 1];
         ++k) {
      const std::vector<int>& atoms = at(allocations_, touched_[k].allocation).of(touched_[k].box);
      const auto append = [&atoms](std::vector<int>& list) {
        list.insert(list.end(), atoms.begin(), atoms.end());
      };
      if (reads(touched_[k].access)) append(program_.reads);
      if (writes(touched_[k].access)) append(program_.writes);
    }
  }
  return std::move(program_);
}

Program program_of(const CallLog& log, const std::set<Edge>& dropped) {
  ProgramRecorder recorder(dropped);
  log.tell(recorder);
  return std::move(recorder).finish();
}

}  // namespace lockstep
