// The plan of activation offloading: which saved tensors go to the host and back in a training
// microbatch, when, and which device memory they share. Shapes follow from the scenario, so the
// plan is complete before the first step and never changes. docs/offloading.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/offload/time_model.h"
#include "engine/plan/schedule.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The time line. A model of n segments (engine/plan/regions.h) has 2n + 2 steps, which count up in
// time: the forward pass of segment i is step i, the head's is step n, its backward pass step n +
// 1, and the backward pass of segment i is step 2n + 1 - i. The embedding is step -1. For n = 4,
// with a module of layer 1, which is a segment of its own:
//
//   step     -1    0    1    2    3    4  |  5    6    7    8    9
//   pass    emb   F0   F1   F2   F3   Fh  | Bh   B3   B2   B1   B0
//   d2h                 |=========|
//   h2d                                   |      |=========|
//   device memory  written    free for others    in use    read
//
// Its d2h copy {1, 3} is launched behind F1 and complete behind F3. Its h2d copy {6, 8} is launched
// before B3 and complete before B1.
//
// The h2d copies of a backward pass may begin in the pass that runs before it, if that leaves their
// buffers alone: a pass through another chunk, or a forward pass that writes the other of two sets
// of buffers. For h2d copies the left half of the time line is that pass, whose last step is step n
// whatever it has; the head counts as a step only where the chunk has it. Elsewhere none begins
// before step n + 1.

// Steps of the time line, both inclusive.
struct StepRange {
  int begin = 0, end = 0;
  int length() const { return end - begin; }
  bool overlaps(const StepRange& other) const { return begin <= other.end && other.begin <= end; }
};

// A saved tensor that goes to the host.
struct OffloadTensor {
  std::string name;  // As a judge knows it: "layers.0.qkv".
  std::int64_t bytes = 0;
  std::int64_t rows = 0;      // If not 0, a copy moves as many of these rows as the data fills.
  std::int64_t segments = 0;  // If not 0, codes of these rows, transposed, in so many segments.
  int written = 0;            // The step that writes it.
  int buffer = -1;  // Index of the shared device buffer in its set; -1 if its group is resident.
};

// The tensors that one module of one layer saves for its backward pass.
struct OffloadGroup {
  OffloadModule module{};
  int layer = 0;
  int last_read = 0;   // The last step of the forward pass that reads it.
  StepRange d2h = {};  // Launched behind step `begin`, which is later than `last_read` if delayed;
                       // complete behind `end`.
  StepRange h2d = {};  // Launched before step `begin` at the earliest; complete before step `end`,
                       // which reads it.
  bool is_resident = false;      // Eligible, but it is kept on the device.
  bool is_within_delta = false;  // Resident because of `offload.delta_bytes`, not of the fraction.
  // Under `offload.captured`: whether its copies are nodes, out of the forward graph of the region
  // that it leaves, back of the backward graph of the region at the plan's position.
  bool leaves_in_graph = false, returns_in_graph = false;
  std::vector<OffloadTensor> tensors = {};
  std::int64_t bytes() const;  // At most, where rows follow the data.
};

struct OffloadPlan {
  int stage = 0, chunk = 0;
  // All eligible ones in order of execution, resident ones included.
  std::vector<OffloadGroup> groups;
  std::vector<std::int64_t> buffers;  // Bytes of each shared device buffer of one set.
  int sets = 1;                       // Sets of buffers: slot s has its tensors in set s % sets.
  // Every other slot of a set assigns its tensors to the set's buffers of their size in reversed
  // order. Copies to the host free buffers in the order of the layers, and copies back need them in
  // the opposite order: with the reversal the buffer that is needed first is the one that is free
  // first. A forward pass that follows another in the same set needs them in the worst order
  // instead.
  bool reversed = false;
  int segments = 0;
  bool has_head = true;
  PassSeconds seconds;  // By the model of time.
  // Seconds of the steps of other passes in which h2d copies may begin, each in the shortest of
  // these passes; that of step n comes first.
  std::vector<double> lead;
  std::int64_t microbatches = 1, slots = 1;
  std::optional<std::int64_t> max_inflight;
  std::int64_t pool_slack = 0;  // Pinned buffers of each size beyond those that the slots hold.
  bool captured = false;  // Some copies of the stage, in any chunk, are nodes of partial graphs.

  bool empty() const { return buffers.empty(); }
  // Whether the chunk's input leaves, which is there before its first segment.
  bool moves_input() const;
  // The step of the backward pass of a segment; `segments` is the head. The step of its forward
  // pass is the segment.
  int backward_step(int segment) const { return 2 * segments + 1 - segment; }
  int last_step() const { return backward_step(0); }
  bool in_forward(int step) const { return step <= segments; }
  // The segment whose pass the step is.
  int segment_of(int step) const { return in_forward(step) ? step : 2 * segments + 1 - step; }
  // The first step before which an h2d copy may be launched.
  int first_h2d_step() const { return backward_step(segments) - static_cast<int>(lead.size()); }
  // The most steps that an h2d copy can have.
  int longest_h2d() const { return last_step() - first_h2d_step(); }
  // The latest step before which an h2d copy has `count` steps until `reader`.
  int h2d_step(int reader, int count) const;
  // How many steps of its pass are behind this one; none if it is the step of a head that lies
  // elsewhere.
  std::optional<int> steps_behind(int step) const;
  // The device buffer of a tensor that moves; the buffers of all sets are numbered consecutively.
  std::size_t buffer_of(const OffloadTensor& tensor, int slot) const;
  // The slot of the backward pass through this chunk that follows that pass of the stage, if its
  // h2d copies may begin meanwhile: not if they would go into the set of buffers that this pass
  // uses.
  std::optional<int> slot_to_come(const std::vector<Pass>& passes, std::size_t pass) const;
  int prefetch() const;        // The most steps that an h2d copy of the plan has.
  std::int64_t bytes() const;  // Each way in a microbatch; at most, where rows follow the data.
  std::int64_t device_bytes() const;  // All buffers of all sets.
  // Device memory that all slots together no longer hold.
  std::int64_t saved_bytes() const { return slots * bytes() - device_bytes(); }
};

// The plans of all chunks of a stage for the first precision that the scenario lists. In that of a
// chunk the time line has its own segments; step -1 is the arrival of its input, and the head's
// step is empty but in the last chunk. A group is eligible if one of its tensors has `min_bytes`.
// Stage s keeps eligible groups until they have s * `delta_bytes`; of the n that are left the last
// floor(n * (1 - fraction)), in order of execution, are resident too. A copy has as many steps as
// it takes by the model of engine/offload/time_model.h, at most `max_inflight`, and no more than
// make a modelled training step faster.
std::vector<OffloadPlan> plan_offloads(const Scenario& scenario, int stage = 0);
// The plan of a model that is one chunk; that of the first chunk elsewhere.
OffloadPlan plan_offload(const Scenario& scenario);

}  // namespace lockstep
