// The checker's findings as values, and the sentences that report them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device/violation.h"
#include "harness/access/touch.h"
#include "harness/checker/hazard_record.h"

namespace lockstep {

enum class HazardKind : std::uint8_t {
  read_after_write,
  write_after_read,
  write_after_write,
  use_before_write,
  use_after_free,
  out_of_bounds,
  destroyed_in_use,  // A stream, an event, a graph or a communicator.
  overlap,           // Operands of one op share bytes, and one of them is written.
};
const char* to_text(HazardKind kind);

struct Hazard {
  HazardKind kind;
  Touch later;
  std::optional<Touch> earlier;  // The access that nothing orders before `later`, or the other
                                 // operand of an overlap.
  std::string later_stream, earlier_stream;
  std::string memory;                 // "bytes 0 to 255 of the 512-byte device allocation 14".
  std::string detail;                 // The missing edge, and the call that would add it.
  std::int64_t allocation_bytes = 0;  // The memory of `later`; 0 if it lies in none.
  bool pinned = false;
  int event = -1;  // Recorded after `earlier`, so that a wait for it would be the edge.
};

// The part of the step in which the harness reads what the engine computed.
inline constexpr const char* kLook = "look";
// The layer of calls that the harness makes outside of it for itself alone, the digest's: they are
// calls of the trainer, so their part keeps its name, by which faults are planted in them.
inline constexpr int kLookLayer = -2;
inline bool looks(const StepLocation& place) {
  return place.layer == kLookLayer || equal_names(place.part, kLook);
}
// A race of such a read: the program may have done nothing wrong so far but leave an edge out.
bool is_look(const Hazard& hazard);

// One paragraph.
std::string text(const Hazard& hazard);
// The streams, accesses and bytes of a hazard, which a report draws.
HazardRecord record_of(const Hazard& hazard);

// A run that ends by hazards; a report draws the records.
class HazardViolation : public EngineViolation {
 public:
  HazardViolation(const std::string& what, std::vector<HazardRecord> records)
      : EngineViolation(JudgeKind::hazard, what), records_(std::move(records)) {}
  const std::vector<HazardRecord>& records() const { return records_; }

 private:
  std::vector<HazardRecord> records_;
};
// The first of each (kind, ops, operands, streams).
std::vector<Hazard> distinct(const std::vector<Hazard>& hazards);

// "copy of 640 bytes (step 1) on stream loader".
std::string describe(const Work& work, const std::string& stream);

}  // namespace lockstep
