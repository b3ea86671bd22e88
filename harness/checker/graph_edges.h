// A captured graph as the checker sees it: its items in the order of capture, each on the lane of
// the stream that was captured, with the allocations that its addresses lay in.
#pragma once

#include <array>
#include <set>
#include <vector>

#include "engine/device/ledger.h"
#include "harness/access/clock.h"
#include "harness/checker/memory.h"

namespace lockstep {

// An operand, and the generation of its memory at capture (-1: not looked up yet, or not our
// memory).
struct CheckedOperand {
  OperandBytes bytes;
  int operand = 0;
  int allocation = -1;
  bool may_be_pageable = false;
};

// Destination, then source.
std::array<CheckedOperand, 2> copy_operands(const CopyCall& copy);
CheckedOperand fill_operand(void* to, std::size_t bytes);
std::vector<CheckedOperand> op_operands(const Submission& op);

struct GraphItem {
  enum class Kind : std::uint8_t { work, record, wait };
  Kind kind;
  int lane;    // 0: the stream that the capture began on, which at a launch is the stream launched
               // on.
  int stream;  // The captured stream.
  Work work;
  std::vector<CheckedOperand> operands;
  int event = -1;
  bool external = false;
};

struct GraphPlan {
  int origin = -1;
  std::vector<int> lanes;  // The captured stream of each lane.
  std::vector<GraphItem> items;
  std::set<int> external_events;  // The graph refers to them as long as it lives.
  std::set<const BackendCommunicator*> communicators;  // Likewise.
  int launches = 0;
  int launched_on = -1;  // The stream of the last launch.
  Clock finished;        // Two launches of one graph never overlap.
};

GraphPlan plan_of(int origin, const Ledger& ledger);

}  // namespace lockstep
