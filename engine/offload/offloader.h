// Moves saved tensors to the host and back as the plan says, on a d2h and an h2d stream of its own.
// It is called between segments: a graph finds its tensors at the same addresses in every
// microbatch, and eager copies run beside the next segment whether that is a graph or not. The
// graph of a whole iteration contains the copies, because the same host code captures it. Under
// `offload.captured` it is called inside of partial graphs too (captured_copies.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/ledger.h"
#include "engine/offload/by_step.h"
#include "engine/offload/copy_lanes.h"
#include "engine/offload/early_copies.h"
#include "engine/offload/plan.h"
#include "engine/tensors/tensor_pool.h"

namespace lockstep {

struct NamedTensor;

struct OffloadedBytes {
  std::int64_t out = 0, in = 0;
};

// The queues of copies that the offloaders of all chunks share: copies of one direction run one
// after the other, and max_inflight limits the sum over all chunks.
struct CopyQueues {
  std::shared_ptr<const Stream> d2h, h2d;  // Null until an offloader has copies.
  // d2h copies that compute has not waited for, oldest first.
  std::vector<const Event*> in_flight;
  std::int64_t most_in_flight = 0;  // As many as there ever were.
  // Under `offload.captured`: behind the latest copy of each direction, in graphs or not (see
  // Offloader::take_turn).
  std::unique_ptr<const Event> latest_out, latest_in;
};

// Serves one chunk, whose segments and slots it counts from 0.
class Offloader {
 public:
  // The rows of a layer's buffers that the data fills in a slot, where the host knows them. Called
  // after a forward pass.
  using RowsInUse = std::function<std::int64_t(int layer, int slot)>;
  // Returns the memory of a buffer of the plan, all sets counted through; null: the offloader's
  // own.
  using BinMemory = std::function<void*(int bin, std::int64_t bytes)>;
  Offloader(Device& device, const Stream& compute, const Scenario& scenario, OffloadPlan plan,
            CopyQueues& queues, RowsInUse rows_in_use, const BinMemory& memory);

  const OffloadPlan& plan() const { return plan_; }
  // The device address of the tensor of that name in that slot; null if it is not offloaded.
  void* place(const std::string& name, int slot, std::size_t bytes) const;

  // These surround the passes of segments; -1 is the embedding, plan().segments the head.

  // Compute waits until the buffers that the segment writes are free.
  void enter_forward(int segment, int slot);
  // Launches d2h copies; only for a microbatch with a backward pass.
  void leave_forward(int segment, int slot);
  // Launches h2d copies; compute waits for what the segment reads.
  void enter_backward(int segment, int slot);
  // Called before the steps of a pass, through any chunk, that the backward pass of `slot` follows
  // (OffloadPlan::slot_to_come): launches the h2d copies that the plan begins when so many steps
  // are behind that one.
  void prefetch(int steps_behind, int slot);

  // Under `offload.captured`, the copies that are nodes of a region's graphs and the waits for
  // them. Called by the host code of a training pass through a captured region: around all of it,
  // and around each layer.
  void begin_region(const RegionPass& pass);
  void before_layer(const RegionPass& pass, int layer);
  void after_layer(const RegionPass& pass, int layer);
  void end_region(const RegionPass& pass);
  // Whether the graph of that pass holds copies.
  bool holds_copies(const RegionPass& pass) const { return lanes_ && lanes_->has(pass); }
  // Launches such a graph, by `launch` on the stream that it is given, and counts its copies.
  void launch(const RegionPass& pass, const Ledger& graph,
              const std::function<void(const Stream&)>& launch);

  // Bytes that the microbatch in the slot moves each way; called after its forward pass.
  std::int64_t due(int slot) const;

  // Forgets all events, between steps and where the capture of a whole step begins or ends: compute
  // has waited for every copy by then, and an event of one side of a capture may not be waited for
  // on the other.
  void drain();
  void synchronize() const;  // The host waits for all copies.

  // Points the offloaded tensors of a slot at their complete copies on the host, for a judge.
  void point_to_copies(std::vector<NamedTensor>& tensors, int slot);
  // Returns the tensors that are never moved. A pass that offloads nothing leaves its values in
  // them alone.
  std::vector<NamedTensor> without_moved(const std::vector<NamedTensor>& tensors) const;

  void append_addresses(std::vector<const void*>& table) const { pool_.append_addresses(table); }
  // Adds the copies of a graph, from its ledger, at each launch, and returns how many they are.
  // Eager copies are counted when they are submitted.
  std::int64_t count_launch(const Ledger& ledger);
  OffloadedBytes moved;
  std::int64_t delayed = 0;  // Groups whose d2h copy was put after a later launch.
  // Copies that ran as nodes of partial graphs, both ways.
  std::int64_t copies_in_graphs = 0, copy_bytes_in_graphs = 0;
  std::int64_t spare_buffers() const;

 private:
  struct Group {
    Group(Device& device, const OffloadGroup& planned, int slots);
    const OffloadGroup& plan;
    bool delayed() const { return plan.d2h.begin != plan.last_read; }
    std::vector<Event> d2h_done, h2d_done;  // Per slot.
    std::optional<Event> last_read;         // Present if delayed: recorded after the last reader.
    std::vector<std::vector<int>> host_copies;  // [slot][tensor]: index of the pinned buffer.
    // Under `offload.captured`: the place in the order in which a forward pass copies out, and the
    // end of the copy for the graph that holds it.
    std::int64_t place = 0;
    std::optional<Event> left_in_capture;
  };
  using Groups = std::vector<Group*>;
  // Events that a later copy or pass has to wait for; null where none is open.
  struct OpenEvents {
    // For each device buffer, the d2h copy that may still read it.
    std::vector<const Event*> buffer_d2h;
    // For each pinned buffer, the h2d copy that may still read it.
    std::vector<const Event*> pinned_h2d;
    EarlyCopies early;
  };

  void add_group(const OffloadGroup& planned);
  std::vector<std::vector<int>> make_host_copies(const OffloadGroup& planned, int slots);
  int make_pinned(std::int64_t bytes);
  std::size_t buffer_index(const OffloadTensor& tensor, int slot) const;
  std::int64_t bytes_of(const Group& group, int slot, std::size_t tensor) const;
  void rotate_pinned(Group& group, int slot, std::size_t tensor);
  void start_h2d(int step, int slot);
  void copy_out(Group& group, int slot);
  void copy_in(Group& group, int slot);
  void note_out(Group& group, int slot);
  void note_in(Group& group, int slot);
  std::int64_t inflight_limit() const;
  enum class Throttle { waits, counts };
  void throttle(const Event& done, Throttle how);

  // Captured copies.
  void prepare_captured();
  bool in_recording() const { return device_.recording() >= 0; }
  const Event& left(const Group& group, int slot) const;
  const Event& returned(const Group& group, int slot) const;
  void take_turn(const Stream& copies) const;
  void end_turn(const Stream& copies) const;
  const Event& latest(const Stream& copies) const;
  void submit_out(Group& group, int slot);
  void submit_in(Group& group, int slot);
  void throttle_region(const Group& group, int slot);

  Device& device_;
  const Stream& compute_;
  const OffloadPlan plan_;
  const std::optional<std::int64_t> max_inflight_;
  const bool rotates_;  // Pinned buffers change from copy to copy; a graph of whole iterations
                        // keeps its own.
  const RowsInUse rows_in_use_;
  TensorPool pool_;
  std::vector<void*> buffers_;  // Device memory, set by set.
  std::vector<PinnedBuffer> pinned_;
  // Unused pinned buffers by bytes, the longest unused first.
  std::map<std::int64_t, std::deque<int>> spares_;
  OpenEvents open_;
  std::vector<std::unique_ptr<Group>> groups_;
  ByStep<const OffloadTensor*> written_at_;
  ByStep<Group*> delayed_at_;  // Delayed groups by the step that reads them last.
  ByStep<Group*> d2h_at_, h2d_at_, needed_at_;
  CopyQueues& queues_;
  std::shared_ptr<const Stream> d2h_, h2d_;
  std::unique_ptr<Event> fork_;
  // Under `offload.captured` alone.
  std::vector<Event> bin_left_;   // For each device buffer: behind the last copy out of it.
  std::vector<Group*> in_order_;  // As a forward pass copies them out.
  std::unique_ptr<CopyLanes> lanes_;
};

using Offloaders = std::vector<std::unique_ptr<Offloader>>;  // One for each chunk.

}  // namespace lockstep
