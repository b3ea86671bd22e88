// What the stages of a pipeline send to one another in their passes: activations forward, their
// gradients backward, and of a tied embedding the head's gradients and the weight. Transfers have
// streams of their own, so that they run beside the passes of other microbatches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/plan/chunks.h"
#include "engine/tensors/memory_range.h"
#include "scenarios/scenario.h"

namespace lockstep {

// All ways of a run, in the order in which all ranks connect them. A library makes what passes send
// in the graph of a step, and what is sent from a gathered weight.
std::vector<TransferWay> ways_between_stages(const Scenario& scenario);

class Transfers {
 public:
  // `ranks` are all of the run; `data` is the number of those of a stage, `slots` that of all
  // chunks of this one.
  Transfers(const Stream& compute, Communicator& ranks, int data, int slots,
            const std::vector<TransferWay>& ways);
  Transfers(const Transfers&) = delete;
  ~Transfers();  // Waits until the others have read what was sent to them.

  // A microbatch of this step or evaluation, and the digest of its documents.
  struct Of {
    int microbatch;
    std::uint64_t documents;
  };
  // Sends what compute has just written.
  void send_output(const Chunk& chunk, const Of& of, const MemoryRange& from);
  void send_gradient(const Chunk& chunk, const Of& of, const MemoryRange& from);
  void send_head_gradient(const Of& of, const MemoryRange& from);
  // Into memory of a slot, once that is released; compute waits for it.
  void receive_input(const Chunk& chunk, int slot, const Of& of, const MemoryRange& to);
  void receive_gradient(const Chunk& chunk, int slot, const Of& of, const MemoryRange& to);
  void receive_head_gradient(int slot, const Of& of, const MemoryRange& to);

  // Compute has read what the slot received for the last time.
  void release(int slot);
  void release_all();
  // Compute may write the slot of a microbatch again from which an earlier pass of the evaluation
  // was sent.
  void await_sent(const Chunk& chunk, int microbatch) const;

  // A graph of several passes holds their transfers. Compute waits for all transfers before it is
  // captured and before it is launched; within, streams of transfers begin behind what compute has
  // done and come back to it, and what is recorded there counts there alone.
  void join();
  void begin_graph();
  void end_graph() { join(); }
  // Makes the launch of such a graph, once the hosts of all stages hold the same transfers.
  // `documents`: of each of its microbatches.
  void launch(const Ledger& graph, const std::vector<std::uint64_t>& documents,
              const std::function<void()>& body);
  Communicator& ranks() { return ranks_; }

  // A tied weight, behind each change of it: the first stage sends it, and the last receives it
  // into its copy once backward passes have read that, as note_weight_read() says behind each. A
  // pass that is to read it receives its input behind the weight.
  // `behind` has the stream wait for what writes the weight beside compute.
  void send_weight(const MemoryRange& weight, const std::function<void(const Stream&)>& behind);
  void receive_weight(const MemoryRange& weight);
  void note_weight_read();
  void await_weight_sent() const { ranks_.await_sent(compute_, rank_at(stages_ - 1)); }

 private:
  // Two streams for each direction: what waits for its receiver holds up nothing else.
  struct Lanes {
    Lanes(Device& device, const char* out, const char* in)
        : send(device, out),
          receive(device, in),
          written(device, "written to be sent"),
          received(device, "received from a stage") {}
    Stream send, receive;
    Event written, received;
  };
  std::array<const Stream*, 4> streams() const {
    return {&forward_.send, &forward_.receive, &backward_.send, &backward_.receive};
  }
  const Event& joint();
  CollectiveName name(const char* purpose, int piece, const Of& of) const;
  int rank_at(int stage) const { return stage * data_ + replica_; }
  void send(Lanes& lanes, const CollectiveName& name, const MemoryRange& from, int stage);
  void receive(Lanes& lanes, const CollectiveName& name, const MemoryRange& to, int stage);

  const Stream& compute_;
  Communicator& ranks_;
  const int data_, stage_, stages_, replica_;
  Lanes forward_, backward_;
  Event weight_read_;
  std::vector<std::unique_ptr<Event>> free_;  // By slot.
  std::unique_ptr<Event> joint_;              // Null without graphs of several passes.
  struct Sent {
    std::unique_ptr<Event> over;
    int recording = -1;  // The capture or dry run that sent from the slot last.
  };
  std::vector<Sent> sent_in_graph_;  // By slot; likewise empty.
  const int exceptions_;             // In flight when this was made.
};

}  // namespace lockstep
