#include "engine/sim/running_op.h"

#include <algorithm>
#include <cstdio>

namespace lockstep {

void describe_running_op(char* text, std::size_t size) {
  text[0] = '\0';
  if (running_op == nullptr) return;
  const StepLocation& place = running_op->place;
  std::size_t used = 0;
  const auto add = [&](const char* format, auto value) {
    if (used + 1 >= size) return;
    const int more = std::snprintf(text + used, size - used, format, value);
    used += std::max(more, 0);
  };
  add("(%s", running_op->name);
  if (place.part[0] != '\0') add(", %s", place.part);
  if (place.layer >= 0) add(", layer %d", place.layer);
  add(", rank %d", place.rank);
  if (place.microbatch >= 0)
    add(running_op->captured ? ", captured for microbatch %d" : ", microbatch %d",
        place.microbatch);
  add(", step %d)", place.step);
}

}  // namespace lockstep
