// Moves saved tensors to the host after the forward pass of their segment and back before its backward pass, on two
// streams of its own, as the plan says. It is called between segments, never inside of a partial graph: a graph finds
// its tensors at the same addresses in every microbatch, and copies run beside the next segment whether that is a
// graph or not. A graph of a whole iteration holds the copies, since its host code is this one.
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
#include "engine/offload/plan.h"
#include "engine/tensors/tensor_pool.h"

namespace lockstep {

struct NamedTensor;

struct OffloadedBytes {
  std::int64_t out = 0, in = 0;
};

class Offloader {
 public:
  // Rows of a layer's buffers that the data fills in a slot, where the host knows them; asked after a forward pass.
  using RowsInUse = std::function<std::int64_t(int layer, int slot)>;
  Offloader(Device& device, const Stream& compute, const Scenario& scenario, RowsInUse rows_in_use);

  const OffloadPlan& plan() const { return plan_; }
  // Where the tensor of that name lies on the device in that slot; null if it is not offloaded.
  void* place(const std::string& name, int slot, std::size_t bytes) const;

  // Around the passes of segments; -1 is the embedding, plan().segments the head.
  void enter_forward(int segment, int slot);   // What it writes is free.
  void leave_forward(int segment, int slot);   // Only where a backward pass will come.
  void enter_backward(int segment, int slot);  // What it reads is there.
  // Before the forward pass of that segment, when the backward pass of what is in the slot comes next: begins the
  // copies back that take longer than that backward pass has.
  void look_ahead(int segment, int slot);

  // What the microbatch in the slot must move each way, after its forward pass.
  std::int64_t due(int slot) const;

  // Between steps, and where a capture of a whole step begins or ends: compute has waited for every copy, so that no
  // event of one side is waited for on the other.
  void settle();

  // For a judge: points the offloaded ones of a slot's tensors at their copies on the host, which are complete.
  void point_to_copies(std::vector<NamedTensor>& tensors, int slot);

  void append_addresses(std::vector<const void*>& table) const { pool_.append_addresses(table); }
  // Copies that ran or were queued. Those of a graph are counted at its launch, by its ledger.
  void count_launch(const Ledger& ledger);
  OffloadedBytes moved;
  std::int64_t most_in_flight = 0;  // Copies to the host that compute had not waited for.
  std::int64_t delayed = 0;         // Groups whose copy was put behind a later launch.
  std::int64_t spare_buffers() const;

 private:
  struct Bin {
    void* memory;
    const Event* leaving = nullptr;  // A copy to the host that may still read it.
  };
  struct Pinned {
    PinnedBuffer memory;
    const Event* returning = nullptr;  // A copy to the device that may still read it.
  };
  struct Group {
    Group(Device& device, const OffloadGroup& planned, int slots);
    const OffloadGroup& plan;
    bool delayed() const { return plan.leaves != plan.ready; }
    std::vector<Event> left, returned;     // Per slot.
    std::optional<Event> made;             // Of a delayed one: compute has what leaves later.
    std::vector<std::vector<int>> copies;  // [slot][tensor]: index of the pinned buffer.
  };
  using Groups = std::vector<Group*>;
  template <class List>
  static List& at(std::vector<List>& by_segment, int segment) {
    return by_segment[static_cast<std::size_t>(segment + 1)];
  }
  // Bins of a set lie one behind the other.
  std::size_t bin_index(const OffloadTensor& tensor, int slot) const;
  Bin& bin(const OffloadTensor& tensor, int slot) { return bins_[bin_index(tensor, slot)]; }
  void begin_return(int position, int slot);
  Pinned& copy_of(const Group& group, int slot, std::size_t tensor);
  std::int64_t bytes_of(const Group& group, int slot, std::size_t tensor) const;
  void add_group(const OffloadGroup& planned);
  int make_pinned(std::int64_t bytes);
  void copy_out(Group& group, int slot);
  void copy_in(Group& group, int slot);
  void take_spare(Group& group, int slot, std::size_t tensor);
  void throttle();

  Device& device_;
  const Stream& compute_;
  const OffloadPlan plan_;
  const std::optional<std::int64_t> max_inflight_;
  const bool rotates_;
  const RowsInUse rows_in_use_;
  TensorPool pool_;
  std::vector<Bin> bins_;
  std::vector<Pinned> pinned_;
  std::map<std::int64_t, std::deque<int>> spares_;  // By bytes, longest free first.
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Groups> delayed_;                             // By the segment + 1 that makes them.
  std::vector<Groups> leaving_, used_;                      // By segment + 1.
  std::vector<Groups> returning_;                           // By position + 1.
  std::vector<std::vector<const OffloadTensor*>> written_;  // By segment + 1.
  std::vector<const Event*> in_flight_;                     // Copies to the host, oldest first.
  std::optional<int> ahead_;                                // The slot whose early copies back have begun.
  std::unique_ptr<Stream> d2h_, h2d_;
  std::unique_ptr<Event> fork_;
};

}  // namespace lockstep
