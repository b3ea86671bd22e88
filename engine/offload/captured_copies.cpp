// Copies that are nodes of the graphs of partial regions (`offload.captured`). The calls here are
// what a region's host code submits, so they are the same in an eager pass, a capture and a dry
// run, and they change nothing that the offloader remembers: who waits for what is fixed by the
// plan. Outside of a capture the events are ordinary ones; a graph records and awaits them as
// external nodes, so that eager passes, other graphs and later launches wait for the same events.
#include <algorithm>

#include "engine/offload/offloader.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {

void Offloader::begin_region(const RegionPass& pass) {
  if (pass.forward) return;
  const Groups& groups = h2d_at_[plan_.backward_step(pass.segment)];
  const auto returns = [](const Group* group) { return group->plan.returns_in_graph; };
  if (std::none_of(groups.begin(), groups.end(), returns)) return;
  compute_.record(*fork_);
  h2d_->wait(*fork_);
  take_turn(*h2d_);
  for (Group* group : groups) {
    if (group->plan.returns_in_graph) submit_in(*group, pass.slot);
  }
  end_turn(*h2d_);
}

void Offloader::before_layer(const RegionPass& pass, int layer) {
  if (pass.forward) return;
  for (const Group* group : needed_at_[plan_.backward_step(pass.segment)]) {
    const bool here = group->plan.leaves_in_graph && group->plan.layer == layer;
    const bool waits = faulty("reload-not-awaited-in-a-graph", here, here && !in_recording());
    if (waits) compute_.wait(returned(*group, pass.slot), in_recording());
  }
}

void Offloader::after_layer(const RegionPass& pass, int layer) {
  if (!pass.forward) return;
  bool forked = false;
  for (Group* group : d2h_at_[pass.segment]) {
    if (!group->plan.leaves_in_graph || group->plan.layer != layer) continue;
    if (!std::exchange(forked, true)) {
      compute_.record(*fork_);
      d2h_->wait(*fork_);
      take_turn(*d2h_);
    }
    submit_out(*group, pass.slot);
  }
  if (forked) end_turn(*d2h_);
}

void Offloader::end_region(const RegionPass& pass) {
  if (!in_recording() || !holds_copies(pass)) return;
  const Stream& copies = pass.forward ? *d2h_ : *h2d_;
  lanes_->end_compute(pass, *faulty("graph-ends-before-its-last-op", &compute_, &copies));
  copies.record(*fork_);
  compute_.wait(*fork_);
}

// Copies of one direction run in the order in which their passes are submitted, as they do on one
// stream. Graphs would leave the order to the GPU, which lets the copies of a later forward pass
// overtake those that the next pass waits for. One event serves all graphs, since a graph waits for
// the latest record before its launch.
void Offloader::take_turn(const Stream& copies) const {
  if (plan_.captured) copies.wait(latest(copies), in_recording());
}

void Offloader::end_turn(const Stream& copies) const {
  if (plan_.captured) copies.record(latest(copies), in_recording());
}

const Event& Offloader::latest(const Stream& copies) const {
  return &copies == d2h_.get() ? *queues_.latest_out : *queues_.latest_in;
}

void Offloader::submit_out(Group& group, int slot) {
  const StepLocationScope scope(device_, group.plan.layer, "offload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  const bool external = in_recording();
  const int host = faulty("copy-node-holds-the-buffer-of-another-slot", slot, external ? 0 : slot);
  d2h_->wait(returned(group, slot), external);  // The pinned buffers are free.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t from = buffer_index(tensors[i], slot);
    d2h_->copy(at(pinned_, at(group.host_copies, host)[i]).data(), buffers_[from],
               static_cast<std::size_t>(tensors[i].bytes), CopyKind::device_to_host,
               tensors[i].name);
    d2h_->record(bin_left_[from], external);
    if (!external) moved.out += tensors[i].bytes;
  }
  d2h_->record(left(group, slot), external);
  if (external) d2h_->record(*group.left_in_capture);
  throttle_region(group, slot);
}

// Compute waits for the copy that is `max_inflight` places ahead in the same forward pass. Within
// one graph that is an edge.
void Offloader::throttle_region(const Group& group, int slot) {
  const std::int64_t limit = inflight_limit(), newer = std::max<std::int64_t>(0, limit - 1);
  const std::int64_t ahead =
      group.place - faulty("throttle-in-graphs-waits-for-a-newer-copy", limit, newer);
  if (ahead < 0) return;
  const Group& other = *at(in_order_, ahead);
  const bool in_this_graph =
      other.plan.leaves_in_graph && other.plan.d2h.begin == group.plan.d2h.begin;
  const bool is_edge = faulty("throttle-awaits-an-event-of-another-capture", in_this_graph,
                              other.plan.leaves_in_graph);
  if (in_recording() && is_edge) return compute_.wait(*other.left_in_capture);
  compute_.wait(left(other, slot), in_recording());
}

// The last copy out of the bin may be one of another group or slot, so its event is the bin's.
void Offloader::submit_in(Group& group, int slot) {
  const StepLocationScope scope(device_, group.plan.layer, "reload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  const bool external = in_recording();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t to = buffer_index(tensors[i], slot);
    h2d_->wait(bin_left_[to], external);
    h2d_->copy(buffers_[to], at(pinned_, at(group.host_copies, slot)[i]).data(),
               static_cast<std::size_t>(tensors[i].bytes), CopyKind::host_to_device,
               tensors[i].name);
    if (!external) moved.in += tensors[i].bytes;
  }
  h2d_->record(returned(group, slot), external);
}

void Offloader::launch(const RegionPass& pass, const Ledger& graph,
                       const std::function<void(const Stream&)>& launch) {
  lanes_->launch(pass, launch);
  const OffloadedBytes before = moved;
  copies_in_graphs += count_launch(graph);
  copy_bytes_in_graphs += moved.out - before.out + moved.in - before.in;
}

}  // namespace lockstep
