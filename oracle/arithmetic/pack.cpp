#include "oracle/arithmetic/pack.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::oracle {

namespace {

void check(const Document& document, std::int64_t vocab) {
  const auto outside = [vocab](std::int64_t low) {
    return [low, vocab](std::int32_t token) { return token < low || token >= vocab; };
  };
  if (document.targets.size() != document.tokens.size() ||
      std::any_of(document.tokens.begin(), document.tokens.end(), outside(0)) ||
      std::any_of(document.targets.begin(), document.targets.end(), outside(-1))) {
    throw std::invalid_argument("a document has other tokens or targets than the model knows");
  }
}

}  // namespace

PackedBatch make_pack(const Scenario& scenario, const Microbatch& microbatch, Mutant mutant) {
  const Scenario::Data& data = scenario.data;
  PackedBatch pack;
  pack.rows = data.pack_length;
  pack.tokens.assign(pack.rows, -1);
  pack.targets.assign(pack.rows, -1);
  std::int64_t first = 0;
  for (const Document& document : microbatch.documents) {
    check(document, scenario.model.vocab);
    const auto rows = static_cast<std::int64_t>(document.tokens.size());
    const std::int64_t next = first + slot_rows(rows, data.gaps, data.align);
    if (next > pack.rows)
      throw std::invalid_argument("the documents of a microbatch do not fit its pack");
    if (rows > 0) {
      std::copy(document.tokens.begin(), document.tokens.end(), pack.tokens.begin() + first);
      std::copy(document.targets.begin(), document.targets.end(), pack.targets.begin() + first);
      const std::int32_t number =
          document.number + (mutant("documents-are-numbered-from-one") ? 1 : 0);
      pack.documents.push_back({first, rows, static_cast<std::uint32_t>(number)});
      const bool touches =
          !pack.runs.empty() && pack.runs.back().first + pack.runs.back().rows == first;
      if (touches) pack.runs.back().rows += rows;
      if (!touches) pack.runs.push_back(pack.documents.back());
      pack.longest = std::max(pack.longest, pack.runs.back().rows);
    }
    first = next;
  }
  return pack;
}

}  // namespace lockstep::oracle
