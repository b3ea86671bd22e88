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

Boundaries boundaries_of(const Scenario& scenario, const Microbatch& microbatch) {
  const Scenario::Data& data = scenario.data;
  Boundaries all{{0}, {0}};
  std::int64_t behind_last_document = 0;  // The entry behind the last slot that is not empty.
  for (const Document& document : microbatch.documents) {
    const std::int64_t tokens = std::ssize(document.tokens);
    std::int64_t rows = tokens == 0 ? 0 : tokens + data.gaps;
    while (rows % data.align != 0) ++rows;
    all.cu_seqlens.push_back(all.cu_seqlens.back() + tokens);
    all.cu_seqlens_padded.push_back(all.cu_seqlens_padded.back() + rows);
    if (tokens > 0) behind_last_document = std::ssize(all.cu_seqlens) - 1;
  }
  const bool has_tail = all.cu_seqlens_padded.back() < data.pack_length;
  if (data.tail == Tail::append_dummy_seq && has_tail) {
    all.cu_seqlens.push_back(all.cu_seqlens.back());
    all.cu_seqlens_padded.push_back(data.pack_length);
  }
  if (data.tail == Tail::extend_last && behind_last_document > 0) {
    std::fill(all.cu_seqlens_padded.begin() + behind_last_document, all.cu_seqlens_padded.end(),
              data.pack_length);
  }
  return all;
}

}  // namespace lockstep::oracle
