#include "engine/offload/copy_lanes.h"

#include "kernels/core/at.h"

namespace lockstep {

CopyLanes::Lane::Lane(Device& device, int count, int slots) {
  for (int i = 0; i < count; ++i) streams.emplace_back(device, "graph");
  for (int slot = 0; slot < slots; ++slot) compute_done.emplace_back(device, "graph compute done");
}

CopyLanes::CopyLanes(Device& device, const Stream& compute, const OffloadPlan& plan)
    : compute_(compute), fork_(device, "launch fork") {
  const auto slots = static_cast<int>(plan.slots);
  for (const OffloadGroup& group : plan.groups) {
    if (group.leaves_in_graph)
      lanes_.try_emplace({group.d2h.begin, true}, device, plan.sets, slots);
    if (group.returns_in_graph)
      lanes_.try_emplace({plan.segment_of(group.h2d.begin), false}, device, 1, slots);
  }
}

const Event& CopyLanes::compute_done(const RegionPass& pass) const {
  return at(lanes_.at({pass.segment, pass.forward}).compute_done, pass.slot);
}

void CopyLanes::end_compute(const RegionPass& pass, const Stream& stream) const {
  stream.record(compute_done(pass), true);
}

void CopyLanes::launch(const RegionPass& pass,
                       const std::function<void(const Stream&)>& launch) const {
  const std::vector<Stream>& streams = lanes_.at({pass.segment, pass.forward}).streams;
  const Stream& stream = at(streams, pass.slot % std::ssize(streams));
  compute_.record(fork_);
  stream.wait(fork_);
  launch(stream);
  compute_.wait(compute_done(pass));
}

void CopyLanes::synchronize() const {
  for (const auto& [region, lane] : lanes_) {
    for (const Stream& stream : lane.streams) stream.synchronize();
  }
}

}  // namespace lockstep
