// The positions of hooks in the model, and the hooks that each segment runs.
#pragma once

#include "engine/plan/hooks.h"
#include "engine/plan/regions.h"

namespace lockstep {

// Modules of a model as hooks number them: the embedding, the symbols of the pattern, the head.
struct Modules {
  int layers = 0;
  static constexpr int embedding() { return 0; }
  static constexpr int layer(int index) { return 1 + index; }
  int head() const { return 1 + layers; }
  int count() const { return 2 + layers; }
};

// The lists around one part of a layer. Those of the layer run before its first stage and after its
// last one, in whichever segments these are.
std::vector<ExtractedHooks::List> hooks_before(const Part& part, bool forward);
std::vector<ExtractedHooks::List> hooks_after(const Part& part, bool forward);

// The hooks of the passes of a segment, in order.
std::vector<ExtractedHooks::List> hooks_of(const Segment& segment, bool forward);

// The hooks of the layers [first, end), around all of them: those of both passes of a unit.
std::vector<ExtractedHooks::List> hooks_of_layers(int first, int end);

}  // namespace lockstep
