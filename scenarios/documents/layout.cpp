#include "scenarios/documents/layout.h"

#include <algorithm>

namespace lockstep {

std::int64_t slot_rows(std::int64_t length, std::int64_t gaps, std::int64_t align) {
  if (length == 0) return 0;
  return (length + gaps + align - 1) / align * align;
}

std::int64_t pack_rows(const Scenario::Data& data, const MicrobatchLengths& lengths) {
  std::int64_t rows = 0;
  for (const std::int64_t length : lengths) rows += slot_rows(length, data.gaps, data.align);
  return rows;
}

MicrobatchLengths lengths_of(const Microbatch& microbatch) {
  MicrobatchLengths lengths;
  for (const Document& document : microbatch.documents) {
    lengths.push_back(static_cast<std::int64_t>(document.tokens.size()));
  }
  return lengths;
}

std::int64_t tokens_of(const StepData& step) {
  std::int64_t tokens = 0;
  for (const Microbatch& microbatch : step.microbatches) {
    for (const std::int64_t length : lengths_of(microbatch)) tokens += length;
  }
  return tokens;
}

std::int64_t slots_in_use(const Scenario::Data& data, const MicrobatchLengths& lengths) {
  const bool dummy =
      data.tail == Tail::append_dummy_seq && pack_rows(data, lengths) < data.pack_length;
  return static_cast<std::int64_t>(lengths.size()) + (dummy ? 1 : 0);
}

std::int64_t slots_in_use(const Scenario::Data& data, const Microbatch& microbatch) {
  return slots_in_use(data, lengths_of(microbatch));
}

std::int64_t fewest_microbatches(const Scenario::Training& training) {
  std::int64_t count = training.microbatches;
  for (const auto& change : training.change_microbatches_at)
    count = std::min(count, change.microbatches);
  return count;
}

std::int64_t most_microbatches(const Scenario::Training& training) {
  std::int64_t count = training.microbatches;
  for (const auto& change : training.change_microbatches_at)
    count = std::max(count, change.microbatches);
  return count;
}

std::int64_t global_microbatches(const Scenario& scenario, std::int64_t step) {
  return scenario.training.microbatches_at(step) * scenario.parallel.data;
}

GraphNeed need_of(const Scenario::Data& data, const MicrobatchLengths& lengths) {
  return {.slots = slots_in_use(data, lengths),
          .longest = lengths.empty() ? 0 : std::ranges::max(lengths)};
}

GraphNeed larger(GraphNeed a, GraphNeed b) {
  return {.slots = std::max(a.slots, b.slots), .longest = std::max(a.longest, b.longest)};
}

Unfit unfit(const Scenario& scenario, GraphNeed need) {
  if (need.slots > std::ranges::max(scenario.cuda_graph.max_packed_seqs)) return Unfit::documents;
  // No document is longer than the pack, or another rule refuses it.
  const std::int64_t longest = scenario.cuda_graph.max_seqlen.value_or(need.longest);
  return need.longest > longest ? Unfit::length : Unfit::no;
}

std::int64_t longest_captured(const Scenario& scenario) {
  return scenario.cuda_graph.max_seqlen.value_or(scenario.data.pack_length);
}

std::int64_t longest_fitting(const Scenario::Data& data) {
  return std::max<std::int64_t>(0, data.pack_length / data.align * data.align - data.gaps);
}

MicrobatchLengths microbatch_lengths(const Scenario& scenario, std::int64_t step,
                                     std::int64_t microbatch) {
  const Scenario::Data& data = scenario.data;
  if (data.kind == DataKind::distribution) return drawn_lengths(data, step, microbatch);
  if (data.documents.empty()) return {};
  const StepLengths& lists = data.documents[step % data.documents.size()];
  if (lists.empty()) return {};
  MicrobatchLengths lengths = lists[microbatch % lists.size()];
  if (data.long_documents == LongDocuments::truncate) {
    for (std::int64_t& length : lengths) length = std::min(length, data.pack_length);
  }
  return lengths;
}

}  // namespace lockstep
