// Counts and positions that the library takes past the widths of narrow integers. Code that keeps
// such a number in 8 or 16 bits is right in every small scenario.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "scenarios/documents/layout.h"
#include "tests/scenarios/rules/library_files.h"

namespace lockstep {
namespace {

// The sizes of the longest pack of the run.
struct Longest {
  std::int64_t documents = 0, slots = 0, rows = 0, document = 0;
};
Longest longest(const Scenario& s) {
  Longest most;
  if (s.data.kind != DataKind::lengths && s.data.kind != DataKind::distribution) return most;
  // Two steps of each scenario show what its packs are like.
  for (std::int64_t step = 0; step < std::min<std::int64_t>(s.training.steps, 2); ++step) {
    for (std::int64_t m = 0; m < std::min<std::int64_t>(s.training.microbatches_at(step), 4); ++m) {
      const MicrobatchLengths lengths = microbatch_lengths(s, step, m);
      most.documents = std::max(most.documents, std::ssize(lengths));
      most.slots = std::max(most.slots, slots_in_use(s.data, lengths));
      most.rows = std::max(most.rows, s.data.pack_length);
      for (const std::int64_t length : lengths) most.document = std::max(most.document, length);
    }
  }
  return most;
}

std::int64_t layers(const Scenario& s, char kind) {
  return std::ranges::count(s.model.pattern, kind);
}
// A count that the scenario has, or 0 where it has none such.
using Count = std::function<std::int64_t(const Scenario&)>;

struct Width {
  const char* count;
  Count of;
  std::int64_t above;  // 8, 16: more than an unsigned integer of so many bits holds.
};
const std::vector<Width>& widths() {
  static const std::vector<Width> list{
      {"steps", [](auto& s) { return s.training.steps; }, 8},
      {"microbatches of a step", [](auto& s) { return s.training.microbatches_at(0); }, 8},
      {"weights", [](auto& s) { return 8 * layers(s, 'M'); }, 8},
      {"vocabulary", [](auto& s) { return s.model.vocab; }, 16},
      {"experts", [](auto& s) { return layers(s, 'E') > 0 ? s.model.moe.experts + 1 : 0; }, 8},
      {"pairs of a pack",
       [](auto& s) { return layers(s, 'E') > 0 ? longest(s).rows * s.model.moe.top_k : 0; }, 16},
      {"gaps", [](auto& s) { return s.data.gaps; }, 8},
      {"documents of a pack", [](auto& s) { return longest(s).documents; }, 16},
      {"documents of a pack with attention",
       [](auto& s) { return layers(s, '*') > 0 ? longest(s).documents : 0; }, 8},
      {"documents of a pack with Mamba",
       [](auto& s) { return layers(s, 'M') > 0 ? longest(s).documents : 0; }, 8},
      {"rows of a pack", [](auto& s) { return longest(s).rows; }, 16},
      {"rows of a document with attention",
       [](auto& s) { return layers(s, '*') > 0 ? longest(s).document : 0; }, 8},
      {"rows of a document with Mamba",
       [](auto& s) { return layers(s, 'M') > 0 ? longest(s).document : 0; }, 16},
      {"rows of a chunk",
       [](auto& s) {
         return layers(s, 'M') > 0 ? std::min(s.model.mamba.chunk, longest(s).document) : 0;
       },
       8},
      {"rows of weights on several ranks",
       [](auto& s) { return s.parallel.data > 1 ? s.model.vocab : 0; }, 16},
      {"steps of a history",
       [](auto& s) { return s.fp8.recipe == Fp8Recipe::delayed ? s.training.steps : 0; }, 8},
      {"slots of a bucket", [](auto& s) { return std::ranges::max(s.cuda_graph.max_packed_seqs); },
       8},
      {"hidden", [](auto& s) { return s.model.hidden; }, 8},
      {"mlp.hidden", [](auto& s) { return layers(s, '-') > 0 ? s.model.mlp.hidden : 0; }, 8},
      {"mamba.d_inner", [](auto& s) { return layers(s, 'M') > 0 ? s.model.mamba.d_inner : 0; }, 8},
  };
  return list;
}

TEST(LibrarySizes, EveryCountGoesPastItsWidth) {
  for (const auto& [count, of, bits] : widths()) {
    std::int64_t most = 0;
    for (const Scenario& scenario : library()) most = std::max(most, of(scenario));
    EXPECT_GE(most, std::int64_t{1} << bits) << count;
  }
}
// Else the row above would say nothing.
TEST(LibrarySizes, EveryCountIsSmallSomewhere) {
  for (const auto& [count, of, bits] : widths()) {
    EXPECT_TRUE(std::ranges::any_of(library(), [&](const Scenario& scenario) {
      return of(scenario) < std::int64_t{1} << bits;
    })) << count;
  }
}

}  // namespace
}  // namespace lockstep
