// The place of a call in the training step. The engine sets it, reports read it.
#pragma once

#include <string_view>

namespace lockstep {

struct StepLocation {
  int step = -1;
  int microbatch = -1;
  int layer = -1;               // Index of the layer's symbol in the pattern; -1 outside of layers.
  int rank = 0;                 // Data-parallel rank.
  const char* part = "";        // "qkv", "optimizer", ...
  bool backward = false;        // In the backward pass of a microbatch.
  bool before_capture = false;  // In a pass on a dummy pack before a capture.

  // The part of the step in which a backward pass computes again what was not saved.
  static constexpr const char* kRecompute = "recompute";
  bool recomputes() const { return std::string_view(part) == kRecompute; }
};

}  // namespace lockstep
