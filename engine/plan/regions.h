// The regions into which partial graphs cut the model: the captured parts of one block form a
// region, and the rest runs eagerly.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// A layer `E` runs in three stages (the backward pass in opposite order), and a graph may end after
// the first or the second. Every other layer is one stage, whatever its name.
enum class Stage : std::uint8_t {
  router,      // Norm, routing, router losses, shared expert.
  preprocess,  // The destination of each pair; counts.
  experts,     // Dispatch, expert products, combine, residual.
  end,
};

// The stages [begin, end) of a layer.
struct Part {
  int layer = 0;  // Symbol index.
  Stage begin = Stage::router;
  Stage end = Stage::end;

  bool has(Stage stage) const { return begin <= stage && stage < end; }
};

struct Segment {
  std::vector<Part> parts;  // In order.
  int region = -1;          // Counted from 0; -1: eager.
};

// The whole pattern in order. Without partial graphs every segment is eager.
std::vector<Segment> segments(const Scenario& scenario);

}  // namespace lockstep
