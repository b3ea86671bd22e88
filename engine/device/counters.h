// Counters of a device, for the non-vacuity rules of the harness. One thread at a time, as
// everything at a device.
#pragma once

#include <cstdint>
#include <map>

namespace lockstep {

struct RankCounters {
  std::int64_t ops_recomputed = 0;  // Ops of a backward pass that compute again what was not saved.
  std::int64_t attention_by_cudnn = 0;  // Backward passes of core attention that cuDNN computed.
  std::int64_t expert_rows_read = 0;    // How often the host read a layer's rows per expert.
  std::int64_t fp8_products = 0;
  std::int64_t fp8_casts = 0;  // X and dY; both layouts of the codes are one.
  std::int64_t weight_casts = 0;
  std::int64_t amax_exchanges = 0;  // Calls between the ranks, one with itself alone included.
};

struct DeviceCounters {
  std::int64_t ops = 0;  // Ops that ran or were queued, those inside launched graphs included.
  std::int64_t host_syncs = 0;
  std::int64_t delays = 0;          // The ones inside launched graphs included.
  std::int64_t bytes_poisoned = 0;  // By ops.
  // The reference stays valid as long as the device.
  RankCounters& of(int rank) { return by_rank[rank]; }

  std::map<int, RankCounters> by_rank;
};

}  // namespace lockstep
