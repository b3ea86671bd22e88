#include "engine/memory/placement.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

using Order = std::vector<std::size_t>;

// For each block, the blocks that it may share no byte with.
std::vector<BitSet> conflicts_of(const std::vector<MemoryBlock>& blocks) {
  std::vector<BitSet> conflicts(blocks.size(), BitSet(std::ssize(blocks)));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!blocks[i].alive.meet(blocks[j].alive)) continue;
      conflicts[i].add(static_cast<std::int64_t>(j));
      conflicts[j].add(static_cast<std::int64_t>(i));
    }
  }
  return conflicts;
}

struct Taken {
  std::int64_t begin, end;
};

// The lowest place with room for `bytes` beside what is taken, which is sorted by its begin.
std::int64_t lowest_gap(const std::vector<Taken>& taken, std::int64_t bytes) {
  const std::int64_t needed = faulty("shared-memory-fits-into-any-gap", bytes, 1);
  std::int64_t place = 0;
  for (const Taken& one : taken) {
    if (place + needed <= one.begin) break;
    place = std::max(place, one.end);
  }
  return place;
}

Placement place_in(const Order& order, const std::vector<MemoryBlock>& blocks,
                   const std::vector<BitSet>& conflicts) {
  Placement placement{.offsets = std::vector<std::int64_t>(blocks.size())};
  Order placed;  // Sorted by offset.
  std::vector<Taken> taken;
  for (const std::size_t block : order) {
    const MemoryBlock& mine = blocks[block];
    taken.clear();
    for (const std::size_t other : placed) {
      if (!conflicts[block].has(static_cast<std::int64_t>(other))) continue;
      const std::int64_t begin = placement.offsets[other];
      taken.push_back({begin, begin + blocks[other].bytes});
    }
    const std::int64_t offset = lowest_gap(taken, mine.bytes);
    placement.offsets[block] = offset;
    placement.bytes = std::max(placement.bytes, offset + mine.bytes);
    const auto behind = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](std::int64_t at, std::size_t other) { return at < placement.offsets[other]; });
    placed.insert(behind, block);
  }
  return placement;
}

using Weight = std::function<std::int64_t(const MemoryBlock&)>;

Order falling(const std::vector<MemoryBlock>& blocks, const Weight& weight) {
  std::vector<std::int64_t> weights;
  for (const MemoryBlock& block : blocks) weights.push_back(weight(block));
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  return order;
}

Order by_size(const std::vector<MemoryBlock>& blocks) {
  return falling(blocks, [](const MemoryBlock& block) { return block.bytes; });
}

bool is_close(std::int64_t bytes, std::int64_t least) { return 20 * bytes <= 21 * least; }

// The place in the order of the block that ends highest.
Order::iterator highest(Order& order, const std::vector<MemoryBlock>& blocks,
                        const Placement& placement) {
  return std::find_if(order.begin(), order.end(), [&](std::size_t block) {
    return placement.offsets[block] + blocks[block].bytes == placement.bytes;
  });
}

// Places the block that ends highest sooner, again and again: behind a share of those before it
// that shrinks from attempt to attempt.
class Search {
 public:
  Search(const std::vector<MemoryBlock>& blocks, std::int64_t least)
      : blocks_(blocks), least_(least), conflicts_(conflicts_of(blocks)) {}

  bool done() const { return !best_.offsets.empty() && is_close(best_.bytes, least_); }
  const Placement& best() const { return best_; }

  Placement attempt(const Order& order) {
    Placement found = place_in(order, blocks_, conflicts_);
    if (best_.offsets.empty() || found.bytes < best_.bytes) best_ = found;
    return found;
  }
  void climb(Order order, std::int64_t attempts) {
    Placement last = attempt(order);
    for (std::int64_t i = 0; i < attempts && !done(); ++i) {
      const auto top = highest(order, blocks_, last);
      const std::ptrdiff_t before = top - order.begin();
      const std::ptrdiff_t to = before * (i % 4) / 4;
      std::rotate(order.begin() + to, top, top + 1);
      last = attempt(order);
    }
  }

 private:
  const std::vector<MemoryBlock>& blocks_;
  const std::int64_t least_;
  const std::vector<BitSet> conflicts_;
  Placement best_;
};

}  // namespace

std::int64_t BitSet::count() const {
  std::int64_t sum = 0;
  for (const std::uint64_t word : words_) sum += std::popcount(word);
  return sum;
}

Peak peak_of(const std::vector<MemoryBlock>& blocks, std::int64_t moments) {
  Peak peak;
  for (std::int64_t moment = 0; moment < moments; ++moment) {
    std::int64_t bytes = 0;
    for (const MemoryBlock& block : blocks) bytes += block.alive.has(moment) ? block.bytes : 0;
    if (bytes > peak.bytes) peak = {moment, bytes};
  }
  return peak;
}

std::int64_t bytes_of_pairs(const std::vector<MemoryBlock>& blocks, const Peak& peak) {
  constexpr std::size_t kMostStarts = 64;
  const std::vector<BitSet> conflicts = conflicts_of(blocks);
  const Order order = by_size(blocks);
  // Adds to `chosen` whatever is in conflict with all of them.
  const auto grow = [&](Order chosen) {
    std::int64_t bytes = 0;
    for (const std::size_t block : chosen) bytes += blocks[block].bytes;
    for (const std::size_t block : order) {
      const bool fits = std::all_of(chosen.begin(), chosen.end(), [&](std::size_t other) {
        return conflicts[block].has(static_cast<std::int64_t>(other));
      });
      if (!fits) continue;
      chosen.push_back(block);
      bytes += blocks[block].bytes;
    }
    return bytes;
  };
  Order at_peak;
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    if (blocks[block].alive.has(peak.moment)) at_peak.push_back(block);
  }
  std::int64_t most = grow(at_peak);
  for (std::size_t i = 0; i < std::min(kMostStarts, order.size()); ++i)
    most = std::max(most, grow({order[i]}));
  return most;
}

Placement first_fit(const std::vector<MemoryBlock>& blocks) {
  return place_in(by_size(blocks), blocks, conflicts_of(blocks));
}

Placement place(const std::vector<MemoryBlock>& blocks, std::int64_t least) {
  // Each attempt looks at all pairs of blocks.
  constexpr std::int64_t kAttempts = 1000, kMostPairs = 100'000'000;
  const std::int64_t pairs = std::max<std::int64_t>(1, std::ssize(blocks) * std::ssize(blocks));
  const std::int64_t attempts = std::min(kAttempts, kMostPairs / pairs);
  const std::vector<Order> orders{
      by_size(blocks),
      falling(blocks, [](const MemoryBlock& block) { return block.alive.count(); }),
      falling(blocks, [](const MemoryBlock& block) { return block.bytes * block.alive.count(); })};
  Search search(blocks, least);
  for (const Order& order : orders) search.attempt(order);
  for (const Order& order : orders) {
    if (!search.done()) search.climb(order, attempts);
  }
  return search.best();
}

}  // namespace lockstep
