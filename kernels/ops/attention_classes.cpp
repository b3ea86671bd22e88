#include "kernels/ops/attention_classes.h"

#include <algorithm>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

constexpr std::int64_t round_up(std::int64_t x, std::int64_t step) {
  return (x + step - 1) / step * step;
}

}  // namespace

AttentionClasses::AttentionClasses(std::int64_t rows, std::int64_t capacity,
                                   std::int64_t max_seqlen) {
  require(rows > 0 && capacity > 0, "a pack has rows and room for a document");
  require(max_seqlen > 0, "a document may have a token");
  const std::int64_t bound = std::min(rows, max_seqlen);
  add({.above = -1, .longest = bound, .slots = capacity});
  const std::int64_t most = std::min(rows, capacity), whole = round_up(rows, kTile);
  for (std::int64_t longest = round_up(bound, kTile); longest > 0;) {
    // `fit` squares of this class fit the square of the whole pack, which has at most rows / (above
    // + 1) documents longer than `above`.
    const std::int64_t fit = whole * whole / (longest * longest);
    std::int64_t above = most <= fit ? 0 : round_up(rows / (fit + 1), kTile);
    if (above >= longest) above = 0;  // Nothing is shorter than a tile.
    add({.above = above,
         .longest = std::min(longest, bound),
         .slots = std::min(most, rows / (above + 1))});
    longest = above;
  }
}

void AttentionClasses::add(AttentionClass one) {
  require(count < kMost, "the square of a class is many times that of the next");
  one.first = slots;
  slots += one.slots;
  list[count++] = one;
}

}  // namespace lockstep
