// What activation offloading does in every training microbatch. Shapes follow from the scenario, so the plan is there
// before the first step, is never changed, and no first call without gradients can spoil it. docs/offloading.md
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

// A saved tensor that goes to the host. Segments are those of engine/plan/regions.h; -1 is the embedding.
struct OffloadTensor {
  std::string name;  // As a judge knows it: "layers.0.qkv".
  std::int64_t bytes = 0;
  std::int64_t rows = 0;  // If not 0, a copy moves as many of these rows as the data fills.
  int written = 0;        // The segment whose forward pass writes it.
  int bin = -1;           // The device buffer that it shares with others; -1 if its group stays.
};

// The tensors that one module of one layer saves for its backward pass.
struct OffloadGroup {
  OffloadModule module{};
  int layer = 0;
  // Segments; the head is one behind all others.
  int ready = 0;    // Read for the last time by the forward pass of this one,
  int leaves = 0;   // copied to the host when that of this one was launched: the same, or a later one if delayed,
  int gone = 0;     // which may take until that of this one is over.
  int returns = 0;  // Copied back from the begin of this position on (see OffloadPlan::ahead)
  int used = 0;     // to be read by the backward pass of this segment.
  bool stays = false;
  std::vector<OffloadTensor> tensors = {};
  std::int64_t bytes() const;  // At most, where rows follow the data.
};

struct OffloadPlan {
  std::vector<OffloadGroup> groups;  // All eligible ones in order of execution, those included that stay.
  std::vector<std::int64_t> bins;    // Bytes of each shared device buffer of a set.
  int sets = 1;                      // Of bins: slot s has its tensors in set s % sets.
  // Every other slot of a set has its tensors in the set's bins of their size in opposite order. Copies to the host
  // empty bins in the order of the layers, and copies back want them in the opposite one: so the first that is wanted
  // is the first that is free. In return a forward pass behind a forward pass in the same set wants them in the worst.
  bool mirrored = false;
  int segments = 0;
  PassSeconds seconds;  // By the model.
  std::int64_t microbatches = 1, slots = 1;
  std::optional<std::int64_t> max_inflight;
  std::int64_t slack = 0;  // Pinned buffers of each size that no slot needs.

  bool empty() const { return bins.empty(); }
  // The buffer of a tensor that moves, of all sets one behind the other.
  std::size_t bin_of(const OffloadTensor& tensor, int slot) const;
  // The slot whose backward pass comes behind this forward pass, if its copies back may begin now: not into the bins
  // that this pass writes.
  std::optional<int> slot_to_come(const std::vector<Pass>& passes, std::size_t pass) const;
  // Positions count back from a backward pass: the backward pass of segment i is at i, the head's at `segments`, and
  // the forward pass of segment i of the microbatch that runs before it is here.
  int ahead(int segment) const { return 2 * segments + 1 - segment; }
  // The first position at which a copy back may begin. While one microbatch is in its forward pass, those of the next
  // backward pass go into bins of another set, if there is one.
  int earliest() const { return sets > 1 ? ahead(0) : segments; }
  int prefetch() const;        // Most segments between the begin of a copy back and the backward pass that reads it.
  std::int64_t bytes() const;  // To the host, and back, in a microbatch; at most, where rows follow the data.
  std::int64_t device_bytes() const;  // Of all bins of all sets.
  // Device memory that all slots together no longer hold.
  std::int64_t saved_bytes() const { return slots * bytes() - device_bytes(); }
};

// For the first precision that the scenario lists. Of n eligible groups floor(n * (1 - fraction)) stay, counted from
// the end of execution order over all layers; a group is eligible if one of its tensors has `min_bytes`. A copy has as
// many segments to itself as it takes by the model of engine/offload/time_model.h, at most `max_inflight` and no more
// than make a modelled step faster.
OffloadPlan plan_offload(const Scenario& scenario);

}  // namespace lockstep
