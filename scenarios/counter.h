// What a run counts. Reports, `expect.counters` and the judge of vacuity use the same names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

enum class Counter : std::uint8_t {
  graphs_captured,
  graph_replays,
  eager_fallbacks,
  graphs_evicted,
  recaptures,
  max_outstanding,
  slots_live,
  evaluations,
  host_syncs,
  tokens_dropped,
  bytes_planned,
  bytes_offloaded,
  bytes_reloaded,
  collectives,
  collectives_in_graphs,
  persistent_buffers,
  late_gathers,
  offloads_in_flight,
  offloads_delayed,
  spare_buffers,
  copies_in_graphs,
  copy_bytes_in_graphs,
  pairs_routed,
  experts_used,
  expert_rows_read,
  ops_recomputed,
  attention_by_cudnn,
  ops,
  hazards_checked,
  delays_applied,
  bytes_poisoned,
  bytes_poisoned_padding,
  bytes_poisoned_staging,
  schedules_explored,
  // Eager fallbacks by reason; they add up to eager_fallbacks.
  fallbacks_documents,  // More documents than the largest bucket holds.
  fallbacks_length,     // A document longer than cuda_graph.max_seqlen.
  fallbacks_cut,        // A part of a step, which the graph of a whole step cannot run.
  evaluation_replays,   // Of forward graphs that cuda_graph.evaluation asks for.
  capture_passes,       // Forward and backward passes of cuda_graph.capture_passes.
  resumes,              // How often a judged run was saved, destroyed and loaded.
  bytes_shared,         // Sum of the tensors in shared memory, less its size.
  fp8_products,         // Products of layers that multiply codes (arithmetic.md 5.1).
  fp8_casts,            // X and dY; both layouts of the codes are one.
  weight_casts,         // W, for all passes until the next.
  amax_exchanges,       // Calls that exchange pending amaxes (arithmetic.md 5.5).
  // Those of planted faults are in results alone; `expect.counters` may not name them.
  door_faults_struck,  // How often a fault at the device met its call.
  planted_fault_met    // The same of any planted fault, at the device or in the code.
};

// The name of the enumerator.
const std::string& to_text(Counter counter);
std::optional<Counter> counter_from_text(const std::string& name);

// JSON objects, canonical forms and the first rule that is reported follow the order of names.
struct ByName {
  bool operator()(Counter a, Counter b) const { return to_text(a) < to_text(b); }
};
using Counters = std::map<Counter, std::int64_t, ByName>;

}  // namespace lockstep
