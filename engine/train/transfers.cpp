#include "engine/train/transfers.h"

#include <exception>

#include "engine/comm/graph_calls.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

constexpr const char *kOutput = "activations", *kGradient = "gradients",
                     *kHeadGradient = "head gradient", *kWeight = "tied weight";

}  // namespace

std::vector<TransferWay> ways_between_stages(const Scenario& scenario) {
  const Scenario::Parallel& parallel = scenario.parallel;
  const auto data = static_cast<int>(parallel.data), stages = static_cast<int>(parallel.pipeline);
  const auto microbatches = static_cast<int>(most_microbatches(scenario.training));
  const int most = static_cast<int>(parallel.chunks) * microbatches;
  const bool captured = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  std::vector<TransferWay> all;
  for (int stage = 0; stage < stages; ++stage) {
    const int next = (stage + 1) % stages;
    if (next == 0 && parallel.chunks == 1) continue;
    for (int d = 0; d < data; ++d) {
      const int here = stage * data + d, there = next * data + d;
      all.insert(all.end(), {{here, there, kOutput, most, captured},
                             {there, here, kGradient, most, captured}});
    }
  }
  const bool gathered = data > 1 && scenario.fsdp.strategy != Sharding::no_shard;
  for (int d = 0; scenario.model.tied_embedding && d < data; ++d) {
    const int last = (stages - 1) * data + d;
    all.insert(all.end(),
               {{last, d, kHeadGradient, microbatches, captured}, {d, last, kWeight, 1, gathered}});
  }
  return all;
}

Transfers::Transfers(const Stream& compute, Communicator& ranks, int data, int slots,
                     const std::vector<TransferWay>& ways)
    : compute_(compute),
      ranks_(ranks),
      data_(data),
      stage_(ranks.rank() / data),
      stages_(ranks.size() / data),
      replica_(ranks.rank() % data),
      forward_(compute.device(), "send forward", "receive forward"),
      backward_(compute.device(), "send backward", "receive backward"),
      weight_read_(compute.device(), "tied weight read"),
      exceptions_(std::uncaught_exceptions()) {
  for (int slot = 0; slot < slots; ++slot)
    free_.push_back(std::make_unique<Event>(compute.device(), "slot is free"));
  release_all();
  note_weight_read();
  ranks_.connect(ways);
}

Transfers::~Transfers() {
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    for (int stage = 0; stage < stages_; ++stage) {
      if (stage != stage_) ranks_.await_sent(forward_.send, rank_at(stage));
    }
    for (const Lanes* lanes : {&forward_, &backward_}) {
      lanes->send.synchronize();
      lanes->receive.synchronize();
    }
    ranks_.disconnect();
  } catch (...) {  // Another rank has reported the failure.
  }
}

void Transfers::send(Lanes& lanes, const CollectiveName& name, const MemoryRange& from, int stage) {
  compute_.record(lanes.written);
  lanes.send.wait(*faulty("sent-before-it-is-written", &lanes.written, &lanes.received));
  ranks_.send(lanes.send, name, from.data, from.bytes, rank_at(stage));
}

void Transfers::receive(Lanes& lanes, const CollectiveName& name, const MemoryRange& to,
                        int stage) {
  ranks_.receive(lanes.receive, name, to.data, to.bytes, rank_at(stage));
  lanes.receive.record(lanes.received);
  compute_.wait(lanes.received);
}

// A graph serves many steps, so that its transfers name no documents.
CollectiveName Transfers::name(const char* purpose, int piece, const Of& of) const {
  const bool captured = compute_.device().recording() >= 0;
  return {purpose, piece, of.microbatch, captured ? 0 : of.documents};
}

void Transfers::send_output(const Chunk& chunk, const Of& of, const MemoryRange& from) {
  send(forward_, name(kOutput, chunk.piece, of), from, chunk.stage_behind());
  const int recording = compute_.device().recording();
  if (recording < 0) return;
  Sent& sent = at(sent_in_graph_, chunk.slot_of(of.microbatch));
  forward_.send.record(*sent.over);
  sent.recording = recording;
}

void Transfers::send_gradient(const Chunk& chunk, const Of& of, const MemoryRange& from) {
  send(backward_, name(kGradient, chunk.piece, of), from, chunk.stage_before());
}

void Transfers::send_head_gradient(const Of& of, const MemoryRange& from) {
  send(backward_, name(kHeadGradient, -1, of), from, 0);
}

void Transfers::receive_input(const Chunk& chunk, int slot, const Of& of, const MemoryRange& to) {
  const int next = (slot + 1) % static_cast<int>(free_.size());
  forward_.receive.wait(*at(free_, faulty("input-received-before-its-slot-is-free", slot, next)));
  receive(forward_, name(kOutput, chunk.piece - 1, of), to, chunk.stage_before());
}

void Transfers::receive_gradient(const Chunk& chunk, int slot, const Of& of,
                                 const MemoryRange& to) {
  using Call = std::function<void()>;
  const Call behind_inputs = [this] {
    if (compute_.device().recording() < 0) return;
    forward_.receive.record(forward_.received);
    backward_.receive.wait(forward_.received);
  };
  const Call waits = faulty<Call>(
      "captured-gradient-waits-for-inputs", [] {}, behind_inputs);
  waits();
  backward_.receive.wait(*at(free_, slot));
  receive(backward_, name(kGradient, chunk.piece + 1, of), to, chunk.stage_behind());
}

void Transfers::receive_head_gradient(int slot, const Of& of, const MemoryRange& to) {
  backward_.receive.wait(*at(free_, slot));
  receive(backward_, name(kHeadGradient, -1, of), to, stages_ - 1);
}

void Transfers::note_weight_read() { compute_.record(weight_read_); }

void Transfers::release(int slot) { compute_.record(*at(free_, slot)); }

void Transfers::release_all() {
  for (const auto& event : free_) compute_.record(*event);
}

void Transfers::await_sent(const Chunk& chunk, int microbatch) const {
  const bool waits = faulty("evaluation-overwrites-what-is-sent", true, false);
  const int recording = compute_.device().recording();
  if (waits && recording < 0) ranks_.await_sent(compute_, rank_at(chunk.stage_behind()));
  if (recording < 0) return;
  const Sent& sent = at(sent_in_graph_, chunk.slot_of(microbatch));
  if (waits && sent.recording == recording) compute_.wait(*sent.over);
}

const Event& Transfers::joint() {
  if (joint_) return *joint_;
  joint_ = std::make_unique<Event>(compute_.device(), "transfers meet compute");
  for (std::size_t slot = 0; slot < free_.size(); ++slot)
    sent_in_graph_.push_back({std::make_unique<Event>(compute_.device(), "sent in a graph")});
  return *joint_;
}

void Transfers::join() {
  const Event* const all = &joint();
  const Event* const early = compute_.device().recording() < 0 ? &weight_read_ : all;
  for (const Stream* const stream : streams()) {
    stream->record(*all);
    compute_.wait(*faulty("graph-beside-a-transfer-under-way", all, early));
  }
}

void Transfers::begin_graph() {
  compute_.record(joint());
  for (const Stream* const stream : streams()) stream->wait(joint());
  release_all();
}

// Later transfers come behind the graph, and wait for no event of its capture.
void Transfers::launch(const Ledger& graph, const std::vector<std::uint64_t>& documents,
                       const std::function<void()>& body) {
  const std::vector<std::string> all = ranks_.all_gather_object(transfers_text(graph, documents));
  std::vector<RankTransfers> of_replica;
  for (int stage = 0; stage < stages_; ++stage)
    of_replica.push_back({rank_at(stage), at(all, rank_at(stage))});
  require_matching_transfers(of_replica);
  body();
  ranks_.launched_transfers(compute_);
  using Call = std::function<void()>;
  const Call release = [this] { release_all(), note_weight_read(); };
  const Call released = faulty<Call>("slots-released-in-the-graph-alone", release, [] {});
  released();
}

void Transfers::send_weight(const MemoryRange& weight,
                            const std::function<void(const Stream&)>& behind) {
  behind(forward_.send);
  send(forward_, {kWeight}, weight, stages_ - 1);
}

void Transfers::receive_weight(const MemoryRange& weight) {
  forward_.receive.wait(weight_read_);
  ranks_.receive(forward_.receive, {kWeight}, weight.data, weight.bytes, rank_at(0));
}

}  // namespace lockstep
