// A hazard as the value that results carry: all that a drawing of it needs, and nothing of the
// checker's state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// One of the two accesses.
struct HazardSide {
  std::string stream;   // "loader", "the host of rank 1".
  std::string work;     // "copy", "rms_norm_forward".
  std::string place;    // "metadata, microbatch 0, step 0"; "" where the call has none.
  std::string replay;   // "replay 2 of graph 3"; "" outside of graphs.
  std::string operand;  // Its name in the op; "" for copies, fills and the host.
  std::string access;   // "reads", "writes", "updates" or "uses as scratch".
  std::int64_t rank = 0;
  // Bytes [first + i * pitch, first + i * pitch + width) of the allocation, for i in [0, rows).
  std::int64_t first = 0, rows = 0, width = 0, pitch = 0;
  friend bool operator==(const HazardSide&, const HazardSide&) = default;
};

struct HazardRecord {
  std::string kind;  // "read after write"
  HazardSide later;
  std::optional<HazardSide> earlier;  // Absent where one access alone is wrong.
  std::int64_t allocation = -1, allocation_bytes = 0;
  bool pinned = false;
  std::int64_t event = -1;  // Recorded after `earlier`: a wait for it would be the missing edge.
  std::string text;         // The paragraph that reports it.
  friend bool operator==(const HazardRecord&, const HazardRecord&) = default;
};

}  // namespace lockstep
