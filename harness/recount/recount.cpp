#include "harness/recount/recount.h"

#include <algorithm>
#include <sstream>

#include "engine/data/packed_batch.h"
#include "harness/recount/layout.h"
#include "kernels/core/at.h"

namespace lockstep::recount {
namespace {

bool reads_files(const Scenario::Data& data) {
  return data.kind == DataKind::text || data.kind == DataKind::jsonl;
}

std::int64_t most_of_a_rank(const Scenario::Training& training) {
  std::int64_t most = training.microbatches;
  for (const auto& change : training.change_microbatches_at)
    most = std::max(most, change.microbatches);
  return most;
}

// "token 12, not 13"
template <class T>
std::string not_equal(const std::string& what, const T& got, const T& want) {
  std::ostringstream text;
  text << what << " " << got << ", not " << want;
  return text.str();
}

std::string difference(const Document& want, const Document& got) {
  if (got.number != want.number) return not_equal("number", got.number, want.number);
  const std::int64_t tokens = std::ssize(got.tokens), targets = std::ssize(got.targets);
  if (tokens != std::ssize(want.tokens))
    return not_equal("tokens", tokens, std::ssize(want.tokens));
  if (targets != tokens) return not_equal("rows of targets", targets, tokens);
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::string row = "row " + std::to_string(i) + ": ";
    if (at(got.tokens, i) != at(want.tokens, i))
      return not_equal(row + "token", at(got.tokens, i), at(want.tokens, i));
    if (at(got.targets, i) != at(want.targets, i))
      return not_equal(row + "target", at(got.targets, i), at(want.targets, i));
  }
  return "";
}

// The rows that the engine stages, against those that the recounted documents have.
std::string difference_of_packs(const Scenario& scenario, const Microbatch& want,
                                const Microbatch& got) {
  const HostPackedBatch pack = lay_out(pack_shape(scenario), got);
  const PackRows rows = rows_of(scenario.data, want);
  for (std::int64_t i = 0; i < scenario.data.pack_length; ++i) {
    const std::string row = "row " + std::to_string(i) + " of the pack: ";
    if (at(pack.tokens, i) != at(rows.token, i))
      return not_equal<std::int64_t>(row + "token", at(pack.tokens, i), at(rows.token, i));
    if (at(pack.targets, i) != at(rows.target, i))
      return not_equal<std::int64_t>(row + "target", at(pack.targets, i), at(rows.target, i));
  }
  return "";
}

}  // namespace

Recount::Recount(const Scenario& scenario)
    : scenario_(scenario),
      reads_files_(reads_files(scenario.data)),
      documents_(reads_files_ ? documents_of_files(scenario) : std::vector<Whole>{}),
      packs_(next_fit(scenario.data, pieces_of(scenario.data, documents_))) {
  if (scenario.training.eval_every == 0) return;
  const std::int64_t half = std::max<std::int64_t>(1, std::ssize(packs_) / 2);
  held_out_ = std::min(half, scenario.parallel.data * most_of_a_rank(scenario.training));
}

StepData Recount::training(std::int64_t step) const {
  return this->step(step, {Drawn::token, Drawn::mask});
}

StepData Recount::evaluation(std::int64_t step) const {
  return this->step(step, {Drawn::evaluation_token, Drawn::evaluation_mask});
}

std::int64_t Recount::microbatches(std::int64_t step) const {
  std::int64_t count = scenario_.training.microbatches;
  for (const auto& change : scenario_.training.change_microbatches_at)
    if (change.step <= step) count = change.microbatches;
  return count * scenario_.parallel.data;
}

StepData Recount::step(std::int64_t step, const Purposes& purposes) const {
  StepData data;
  std::int32_t number = 0;
  for (std::int64_t g = 0; g < microbatches(step); ++g) {
    data.microbatches.push_back(reads_files_ ? read(step, g, purposes) : drawn(step, g, purposes));
    for (Document& document : data.microbatches.back().documents) {
      document.number = number++;
      data.targets += std::ssize(document.targets) -
                      std::count(document.targets.begin(), document.targets.end(), -1);
    }
  }
  return data;
}

bool Recount::has_target(const Place& place, Drawn mask, std::int64_t row) const {
  const Scenario::Data::Mask& keys = scenario_.data.mask;
  if (row < keys.prefix) return false;
  if (std::count(keys.microbatches.begin(), keys.microbatches.end(), place.microbatch) != 0)
    return false;
  return keys.rate.millionths == 0 ||
         !happens(word(scenario_.training.seed, mask, place, row), keys.rate);
}

Microbatch Recount::drawn(std::int64_t step, std::int64_t microbatch,
                          const Purposes& purposes) const {
  const Scenario::Data& data = scenario_.data;
  MicrobatchLengths lengths;
  if (data.kind == DataKind::distribution) {
    lengths = lengths_of_pack(data, step, microbatch);
  } else if (!data.documents.empty()) {
    const StepLengths& of_step = at(data.documents, step % std::ssize(data.documents));
    if (!of_step.empty()) lengths = at(of_step, microbatch % std::ssize(of_step));
  }
  Microbatch documents;
  Place place{step, microbatch, 0};
  for (std::int64_t length : lengths) {
    if (data.long_documents == LongDocuments::truncate) length = std::min(length, data.pack_length);
    Document& document = documents.documents.emplace_back();
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint32_t w = word(scenario_.training.seed, purposes.token, place, i);
      document.tokens.push_back(static_cast<std::int32_t>(choose(w, scenario_.model.vocab)));
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const bool has = i + 1 < length && has_target(place, purposes.mask, i);
      document.targets.push_back(has ? at(document.tokens, i + 1) : -1);
    }
    ++place.document;
  }
  return documents;
}

const std::vector<Piece>* Recount::pack(std::int64_t step, std::int64_t microbatch,
                                        Drawn mask) const {
  const std::int64_t trained = std::ssize(packs_) - held_out_;
  if (mask == Drawn::evaluation_mask) return &at(packs_, trained + microbatch % held_out_);
  if (trained == 0) return nullptr;
  std::int64_t before = 0;
  for (std::int64_t s = 0; s < step; ++s) before += microbatches(s);
  return &at(packs_, (before + microbatch) % trained);
}

Microbatch Recount::read(std::int64_t step, std::int64_t microbatch,
                         const Purposes& purposes) const {
  Microbatch documents;
  const std::vector<Piece>* pieces = pack(step, microbatch, purposes.mask);
  if (pieces == nullptr) return documents;
  Place place{step, microbatch, 0};
  for (const Piece& piece : *pieces) {
    Document& document = documents.documents.emplace_back();
    for (std::int64_t i = 0; i < piece.length(); ++i) {
      document.tokens.push_back(at(piece.whole->tokens, piece.begin + i));
      document.targets.push_back(has_target(place, purposes.mask, i) ? piece.next(i) : -1);
    }
    ++place.document;
  }
  return documents;
}

std::string difference(const Scenario& scenario, const StepData& want, const StepData& got) {
  const std::int64_t microbatches = std::ssize(got.microbatches);
  if (microbatches != std::ssize(want.microbatches))
    return not_equal("microbatches", microbatches, std::ssize(want.microbatches));
  for (std::int64_t g = 0; g < microbatches; ++g) {
    const Microbatch& here = at(got.microbatches, g);
    const Microbatch& there = at(want.microbatches, g);
    const std::string place = "global microbatch " + std::to_string(g) + ", ";
    const std::int64_t count = std::ssize(here.documents), wanted = std::ssize(there.documents);
    if (count != wanted) return place + not_equal("documents", count, wanted);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string found = difference(at(there.documents, i), at(here.documents, i));
      if (!found.empty()) return place + "document " + std::to_string(i) + ": " + found;
    }
    const std::string found = difference_of_packs(scenario, there, here);
    if (!found.empty()) return place + found;
  }
  return got.targets == want.targets ? "" : not_equal("targets", got.targets, want.targets);
}

}  // namespace lockstep::recount
