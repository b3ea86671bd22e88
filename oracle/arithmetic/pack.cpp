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

// The slot rows of scenario-reference.md 1, from that text: the engine shares slot_rows().
std::int64_t rows_of_slot(std::int64_t length, const Scenario::Data& data) {
  if (length == 0) return 0;
  const std::int64_t rows = length + data.gaps, over = rows % data.align;
  return over == 0 ? rows : rows + data.align - over;
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

Boundaries boundaries_of(const Scenario& scenario, const Microbatch& microbatch) {
  const Scenario::Data& data = scenario.data;
  Boundaries boundaries{{0}, {0}};
  std::int64_t tokens = 0, rows = 0;
  for (const Document& document : microbatch.documents) {
    const auto length = static_cast<std::int64_t>(document.tokens.size());
    boundaries.cu_seqlens.push_back(tokens += length);
    boundaries.cu_seqlens_padded.push_back(rows += rows_of_slot(length, data));
  }
  if (rows > data.pack_length)
    throw std::invalid_argument("the documents of a microbatch do not fit its pack");
  if (data.tail == Tail::append_dummy_seq && rows < data.pack_length) {
    boundaries.cu_seqlens.push_back(tokens);
    boundaries.cu_seqlens_padded.push_back(data.pack_length);
  }
  // A slot that is not empty has rows, so the entries behind the last such slot are those that hold
  // the sum of all rows.
  if (data.tail == Tail::extend_last && rows > 0) {
    std::replace(boundaries.cu_seqlens_padded.begin(), boundaries.cu_seqlens_padded.end(), rows,
                 data.pack_length);
  }
  return boundaries;
}

}  // namespace lockstep::oracle
