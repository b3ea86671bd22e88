// The counters of a run, which the harness compares with the values that the scenario implies.
#pragma once

#include <cstdint>

namespace lockstep {

struct RunCounters {
  // Eager fallbacks by reason: too many documents, too long ones, a part of a step.
  std::int64_t fallbacks_documents = 0, fallbacks_length = 0, fallbacks_cut = 0;
  std::int64_t recaptures = 0;
  std::int64_t capture_passes = 0;  // Both ways.
  // The most microbatches between their two passes at the same time.
  std::int64_t max_outstanding = 0;
  std::int64_t slots_live = 0;  // The slots that those held; the least of all steps.
  std::int64_t evaluations = 0;
  std::int64_t evaluation_replays = 0;  // Of the forward graphs of cuda_graph.evaluation.
  std::int64_t bytes_planned = 0, bytes_offloaded = 0, bytes_reloaded = 0;
  std::int64_t persistent_buffers = 0;
  std::int64_t late_gathers = 0;  // Counted outside of graphs.
  // The most copies to the host for which compute had not waited.
  std::int64_t offloads_in_flight = 0;
  std::int64_t offloads_delayed = 0;       // Groups whose copy came after a later launch.
  std::int64_t spare_buffers = 0;          // Pinned buffers of `pool_slack`.
  std::int64_t collectives_in_graphs = 0;  // Counted once a launch.
  std::int64_t bytes_shared = 0;           // By which tensors exceed the memory that they share.
  // Copies of offloading that ran as nodes of partial graphs, both ways.
  std::int64_t copies_in_graphs = 0, copy_bytes_in_graphs = 0;
};

}  // namespace lockstep
