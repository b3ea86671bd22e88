#include "harness/explore/recorder.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "harness/explore/mix.h"

namespace lockstep {
namespace {

std::uint64_t hash_text(std::uint64_t hash, const char* text) {
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;  // FNV-1a.
  return hash;
}

// Of numbers in their order, none of which waits for another.
std::uint64_t hash_of(std::initializer_list<std::int64_t> numbers) {
  std::uint64_t hash = 0, place = 0;
  for (const std::int64_t number : numbers) {
    hash += scramble(static_cast<std::uint64_t>(number) + (place += 0x9e3779b97f4a7c15u));
  }
  return hash;
}

}  // namespace

ProgramRecorder::ProgramRecorder(std::set<Edge> dropped) : dropped_(std::move(dropped)), threads_(1) {
  program_.threads = {{"the host"}};
}

// ---- Who comes after whom -------------------------------------------------------------------------------------------

int ProgramRecorder::Frontier::at(int thread) const {
  const auto k = static_cast<std::size_t>(thread);
  return k < items_.size() ? items_[k] : -1;
}

void ProgramRecorder::Frontier::raise(int thread, int item) {
  const auto k = static_cast<std::size_t>(thread);
  if (items_.size() <= k) items_.resize(k + 1, -1);
  items_[k] = std::max(items_[k], item);
}

void ProgramRecorder::Frontier::join(const Frontier& other) {
  for (std::size_t k = 0; k < other.items_.size(); ++k) raise(static_cast<int>(k), other.items_[k]);
}

void ProgramRecorder::on_create_stream(int stream, const char* name) {
  program_.threads[static_cast<std::size_t>(thread_of(stream))].name = name;
}

int ProgramRecorder::thread_of(int stream) {
  const auto [at, fresh] = stream_threads_.try_emplace(stream, static_cast<int>(threads_.size()));
  if (fresh) {
    threads_.emplace_back();
    program_.threads.push_back({std::to_string(stream), stream});
  }
  return at->second;
}

// Launches on one stream follow each other, so their side lanes may share threads.
int ProgramRecorder::lane_thread(int stream, int lane, int captured) {
  if (lane == 0) return thread_of(stream);
  const auto [at, fresh] = lane_threads_.try_emplace({stream, lane}, static_cast<int>(threads_.size()));
  if (fresh) {
    threads_.emplace_back();
    const auto name = [this](int s) { return program_.threads[static_cast<std::size_t>(thread_of(s))].name; };
    program_.threads.push_back({name(captured) + " in graphs on " + name(stream), stream, lane});
  }
  return at->second;
}

int ProgramRecorder::enter(int stream) {
  const int index = thread_of(stream);
  thread(index).known.join(thread(kHost).known);
  return index;
}

// One edge to each thread that the item newly comes after, but for those that another of these edges implies.
void ProgramRecorder::add_edges(int index) {
  Thread& own = thread(index);
  const int count = static_cast<int>(threads_.size());
  const auto fresh = [&](int t) { return t != index && own.known.at(t) > own.implied.at(t); };
  for (int t = 0; t < count; ++t) {
    if (!fresh(t)) continue;
    bool implied = false;
    for (int u = 0; u < count && !implied; ++u) {
      implied = u != t && fresh(u) && frontiers_[static_cast<std::size_t>(own.known.at(u))].at(t) >= own.known.at(t);
    }
    if (!implied) program_.before.push_back(own.known.at(t));
  }
}

void ProgramRecorder::on_record(int stream, int id, bool external) {
  EventState& state = events_[id];
  if (captures(stream)) {
    if (external) return;  // Its turn comes at the launch.
    state.in_capture = true;
    capture_->events.insert(id);
    return;
  }
  state = {true, false, thread(enter(stream)).known};
}

void ProgramRecorder::on_wait(int stream, int id, bool external) {
  if (external || captures(stream)) return;
  if (capture_ && capture_->events.contains(id)) {
    capture_->streams.insert(stream);
    return;
  }
  const EventState& state = events_[id];
  const int index = enter(stream);
  if (state.in_capture || !keeps(Edge::Kind::wait, id, stream)) return;
  thread(index).known.join(state.known);
}

void ProgramRecorder::on_synchronize_event(int id) {
  const EventState& state = events_[id];
  if (!state.in_capture && keeps(Edge::Kind::synchronize_event, id, -1)) thread(kHost).known.join(state.known);
  host_item("synchronize");
}

void ProgramRecorder::on_synchronize_stream(int stream) {
  const Frontier& known = thread(enter(stream)).known;
  if (keeps(Edge::Kind::synchronize_stream, stream, -1)) thread(kHost).known.join(known);
  host_item("synchronize");
}

// ---- Items ----------------------------------------------------------------------------------------------------------

void ProgramRecorder::host_item(const char* name) { add(kHost, {.name = name, .place = {}}, {}, false); }

void ProgramRecorder::on_submit(int stream, const Submission& op, const Place& place) {
  if (captures(stream)) return;
  add(enter(stream), {.name = op.type().name, .place = place}, op_operands(op), false);
}

void ProgramRecorder::on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind kind,
                              const Place& place) {
  if (captures(stream)) return;
  const bool observed = kind == CopyKind::device_to_host && live_.at(to) < 0;  // Pageable: the host has it at return.
  const int index = enter(stream);
  add(index, {.name = "copy", .place = place, .bytes = static_cast<std::int64_t>(bytes)},
      copy_operands(to, from, bytes, kind), observed);
  if (!observed) return;
  thread(kHost).known.join(thread(index).known);
  host_item("synchronize");
}

void ProgramRecorder::on_fill(int stream, void* to, std::size_t bytes, const Place& place) {
  if (captures(stream)) return;
  add(enter(stream), {.name = "fill", .place = place, .bytes = static_cast<std::int64_t>(bytes)},
      fill_operands(to, bytes), false);
}

void ProgramRecorder::on_host_write(const void* memory, std::size_t bytes, const Place& place) {
  add(kHost, {.name = "write", .place = place, .bytes = static_cast<std::int64_t>(bytes)},
      fill_operands(const_cast<void*>(memory), bytes), false);
}

void ProgramRecorder::on_host_read(const void* memory, std::size_t bytes, const Place& place) {
  std::vector<CheckedOperand> operands = fill_operands(const_cast<void*>(memory), bytes);
  operands.front().bytes.access = Access::in;
  add(kHost, {.name = "read", .place = place, .bytes = static_cast<std::int64_t>(bytes)}, operands, true);
}

void ProgramRecorder::add(int index, const Work& work, const std::vector<CheckedOperand>& operands, bool observed) {
  if (is_full()) return;
  const int item = static_cast<int>(program_.items.size());
  first_touch_.push_back(touched_.size());
  for (const CheckedOperand& operand : operands) {
    const OperandBytes& b = operand.bytes;
    Box bytes = box(0, b.rows, b.row_bytes, b.pitch_bytes);
    const int allocation = bytes.is_empty() ? -1 : live_.at(b.base);
    if (allocation < 0) continue;  // The host's pageable memory.
    Atoms& memory = allocations_[static_cast<std::size_t>(allocation)];
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

// Two equal calls on one stream are told apart, since a fill's byte and an op's scalars are not looked at; and so are
// the streams where nothing is read, since what is written then comes from outside.
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
  return mix(hash, static_cast<std::uint64_t>(ordinals_[mix(hash, static_cast<std::uint64_t>(index))]++));
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

void ProgramRecorder::on_allocate(void* memory, std::size_t bytes, bool) {
  live_.add(memory, bytes, static_cast<int>(allocations_.size()));
  allocations_.emplace_back(static_cast<const std::byte*>(memory), static_cast<std::int64_t>(bytes));
}

// What is freed is written to, as far as everybody else is concerned.
void ProgramRecorder::on_release(void* memory, bool) {
  const int released = live_.at(memory);
  if (released < 0) return;
  const std::int64_t bytes = allocations_[static_cast<std::size_t>(released)].bytes;
  add(kHost, {.name = "release", .place = {}, .bytes = bytes}, fill_operands(memory, static_cast<std::size_t>(bytes)),
      false);
  live_.remove(memory);
}

// ---- Graphs ---------------------------------------------------------------------------------------------------------

void ProgramRecorder::on_begin_capture(int stream) { capture_ = Capture{{stream}, {}}; }
void ProgramRecorder::on_abort_capture(int) { capture_.reset(); }

void ProgramRecorder::on_end_capture(int stream, int graph, const Ledger& ledger) {
  graphs_[graph] = {plan_of(stream, ledger), {}, 0};
  capture_.reset();
}

void ProgramRecorder::on_launch(int stream, int id, const Ledger&, const Place& place) {
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
  for (std::size_t lane = 1; lane < threads.size(); ++lane) thread(threads[lane]).known.join(origin);

  std::map<int, EventState> inside, external;
  for (const GraphItem& item : graph.plan.items) {
    const int index = threads[static_cast<std::size_t>(item.lane)];
    if (item.kind == LedgerEntry::Kind::record) {
      (item.external ? external : inside)[item.event] = {true, false, thread(index).known};
    } else if (item.kind == LedgerEntry::Kind::wait) {
      if (!keeps(Edge::Kind::wait, item.event, item.stream)) continue;
      thread(index).known.join((item.external ? events_ : inside)[item.event].known);
    } else {
      Work work = item.work;
      work.graph = id;
      work.launch = graph.launches;
      work.place.step = place.step;
      add(index, work, item.operands, false);
    }
  }
  for (const int index : threads) thread(threads[0]).known.join(thread(index).known);
  graph.finished = thread(threads[0]).known;
  ++graph.launches;
  for (auto& [event, state] : external) events_[event] = std::move(state);
}

// ---- The program ----------------------------------------------------------------------------------------------------

Program ProgramRecorder::finish() && {
  for (Atoms& memory : allocations_) program_.atoms = memory.cut(program_.atoms);
  first_touch_.push_back(touched_.size());
  program_.items.push_back({.work = {}, .before = static_cast<int>(program_.before.size())});
  for (std::size_t i = 0; i < program_.items.size(); ++i) {
    program_.items[i].reads = static_cast<int>(program_.reads.size());
    program_.items[i].writes = static_cast<int>(program_.writes.size());
    for (std::size_t k = first_touch_[i]; i + 1 < program_.items.size() && k < first_touch_[i + 1]; ++k) {
      const std::vector<int>& atoms =
          allocations_[static_cast<std::size_t>(touched_[k].allocation)].of(touched_[k].box);
      const auto append = [&atoms](std::vector<int>& list) { list.insert(list.end(), atoms.begin(), atoms.end()); };
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
