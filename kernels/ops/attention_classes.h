// Documents by length. A library's deterministic backward pass takes memory by the square of the
// longest document that a call has room for, times the documents it has room for; so there is a
// call for each class of lengths, and no call takes more than the longest document by itself would.
#pragma once

#include <cstdint>

namespace lockstep {

struct AttentionClass {
  std::int64_t above = 0, longest = 0;  // Lengths of its documents: above < length <= longest.
  std::int64_t slots = 0;               // As many as a pack can have of them.
  std::int64_t first = 0;               // For its slots, among those of all classes.
};

// A function of the pack's rows, of its capacity and of a bound on its documents alone. Class 0 has
// every document at its own place, empty ones too: a forward pass. The others share the documents
// that are not empty, the longest first: a backward pass.
struct AttentionClasses {
  static constexpr std::int64_t kTile = 64;  // A library rounds lengths up to this.
  static constexpr int kMost = 16;

  static constexpr std::int64_t kNoBound = INT64_MAX;

  // `max_seqlen`: no document is longer, so no call has room for a longer one.
  AttentionClasses(std::int64_t rows, std::int64_t capacity, std::int64_t max_seqlen = kNoBound);

  AttentionClass list[kMost] = {};
  int count = 0;
  std::int64_t slots = 0;  // Over all classes.
  // Each class has an offset more than slots: its end.
  std::int64_t offsets() const { return slots + count; }
  std::int64_t first_offset(int index) const { return list[index].first + index; }

 private:
  void add(AttentionClass one);
};

}  // namespace lockstep
