// The checker's findings as values, and the sentences that report them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/checker/touch.h"

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
  std::string memory;  // "bytes 0 to 255 of the 512-byte device allocation 14".
  std::string detail;  // The missing edge, and the call that would add it.
};

// The part of the step in which the harness reads what the engine computed.
inline constexpr const char* kLook = "look";
// A race of such a read: the program may have done nothing wrong so far but leave an edge out.
bool is_look(const Hazard& hazard);

// One paragraph.
std::string text(const Hazard& hazard);
// The first of each (kind, ops, operands, streams).
std::vector<Hazard> distinct(const std::vector<Hazard>& hazards);

// "copy of 640 bytes (step 1) on stream loader".
std::string describe(const Work& work, const std::string& stream);

}  // namespace lockstep
