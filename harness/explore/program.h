// The work that one run put on its streams, as a schedule sees it: items on threads, the order that
// edges force on them, and the bytes each one reads and writes. Every linear extension of that
// order is a schedule that a device might choose.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/access/touch.h"
#include "kernels/core/at.h"

namespace lockstep {

// An op, copy or fill, alone or in a launch; or something that the host does: a synchronisation, an
// access of its own to pinned memory, a release. Records and waits are no items, they are edges.
struct ProgramItem {
  Work work;
  int thread = 0;              // Index in Program::threads. Items of one thread run in their order.
  std::uint64_t identity = 0;  // Equal for items that make the same of the same bytes.
  bool observed = false;       // The host sees what this reads.
  // The first of its edges, and of the bytes it touches; they end where the next item's begin.
  int before = 0;
  int reads = 0, writes = 0;
};

struct ProgramThread {
  std::string name;
  int stream = -1;  // The stream of its items or of its graph launches; -1: the host.
  int lane = 0;     // In graphs, captured streams in the order in which they joined.
};

struct Program {
  std::vector<ProgramThread> threads;  // 0 is the host; then streams, and lanes of graphs.
  // In the order of the calls. The last one is no item; it only ends the lists.
  std::vector<ProgramItem> items;
  std::vector<int> before;  // Items of other threads that must be over.
  // Atoms are sets of bytes that no access of the run tells apart. They are disjoint, so partial
  // overlaps are exact.
  std::vector<int> reads, writes;
  int atoms = 0;

  bool in_graph(int item) const { return at(items, item).work.graph >= 0; }
  int size() const { return static_cast<int>(items.size()) - 1; }
  std::span<const int> before_of(int item) const {
    return part(before, &ProgramItem::before, item);
  }
  std::span<const int> reads_of(int item) const { return part(reads, &ProgramItem::reads, item); }
  std::span<const int> writes_of(int item) const {
    return part(writes, &ProgramItem::writes, item);
  }

 private:
  std::span<const int> part(const std::vector<int>& all, int ProgramItem::*first, int item) const {
    const std::size_t i = item;
    return std::span(all).subspan(items[i].*first, items[i + 1].*first - items[i].*first);
  }
};

}  // namespace lockstep
