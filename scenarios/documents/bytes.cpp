// Kinds text and jsonl: bytes are tokens, documents (or their pieces) are packed next-fit, the
// packs are read cyclically.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "scenarios/documents/layout.h"
#include "scenarios/documents/random.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/documents/sources.h"
#include "scenarios/documents/targets.h"

namespace lockstep {
namespace {

// Bytes [begin, end) of a document.
struct Piece {
  std::size_t document = 0, begin = 0, end = 0;
};
using PieceList = std::vector<Piece>;

bool may_be_target(const RawDocument& document, std::size_t byte) {
  const auto after = std::ranges::upper_bound(document.targets, byte, {}, &ByteSpan::begin);
  return after != document.targets.begin() && byte < std::prev(after)->end;
}

// A piece is as long as a pack can hold, so that splitting cuts as rarely as it can.
PieceList cut(const Scenario::Data& data, const std::vector<RawDocument>& documents) {
  const std::size_t longest = longest_fitting(data);
  if (longest == 0)
    throw std::runtime_error("data.pack_length holds no document with these gaps and align");
  PieceList pieces;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const std::size_t length = documents[d].bytes.size();
    if (length > longest && data.long_documents == LongDocuments::error) {
      throw std::runtime_error("a document at data.path is longer than a pack");
    }
    std::size_t begin = 0;
    do {
      const std::size_t end = std::min(length, begin + longest);
      pieces.push_back({d, begin, end});
      begin = end;
    } while (begin < length && data.long_documents == LongDocuments::split);
  }
  return pieces;
}

// Next-fit: a piece goes behind the one before it, or opens the next pack.
std::vector<PieceList> pack(const Scenario::Data& data, const PieceList& pieces) {
  std::vector<PieceList> packs(1);
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t more =
        slot_rows(static_cast<std::int64_t>(piece.end - piece.begin), data.gaps, data.align);
    if (rows + more > data.pack_length) {
      packs.emplace_back();
      rows = 0;
    }
    packs.back().push_back(piece);
    rows += more;
  }
  return packs;
}

class ByteSource : public DataSource {
 public:
  explicit ByteSource(const Scenario& scenario)
      : scenario_(scenario),
        documents_(read_raw_documents(scenario)),
        packs_(pack(scenario.data, cut(scenario.data, documents_))),
        training_packs_(packs_.size()) {
    if (scenario.training.eval_every == 0) return;
    // At most half of the packs, but one at least. A single pack leaves training none, which L12
    // refuses.
    const std::size_t most = std::max<std::size_t>(1, packs_.size() / 2);
    const std::int64_t wanted = most_microbatches(scenario.training) * scenario.parallel.data;
    training_packs_ -= std::min(static_cast<std::size_t>(wanted), most);
  }

  StepData training(std::int64_t step) const override {
    return read(step, 0, training_packs_, packs_before(step), Purpose::mask);
  }

  // Every evaluation reads the same packs.
  StepData evaluation(std::int64_t step) const override {
    const std::size_t packs = packs_.size() - training_packs_;
    if (packs == 0)
      throw std::runtime_error("training.eval_every is 0: no pack is kept for evaluation");
    return read(step, training_packs_, packs, 0, Purpose::evaluation_mask);
  }

  // One pass over the training packs, the random share and whole microbatches left unmasked: they
  // select no bytes.
  double unigram_entropy() const override {
    Scenario every_target = scenario_;
    every_target.data.mask.rate = {};
    every_target.data.mask.microbatches.clear();
    std::map<std::int32_t, double> counts;
    double total = 0;
    for (std::size_t p = 0; p < training_packs_; ++p) {
      for (const Document& document :
           microbatch(every_target, packs_[p], {}, Purpose::mask).documents) {
        for (const std::int32_t target : document.targets) {
          if (target < 0) continue;
          ++counts[target];
          ++total;
        }
      }
    }
    double entropy = 0;
    for (const auto& [token, count] : counts) entropy -= count / total * std::log(count / total);
    return entropy;
  }

 private:
  // Packs that the steps before this one have read.
  std::uint64_t packs_before(std::int64_t step) const {
    std::int64_t packs = 0, since = 0, count = scenario_.training.microbatches;
    for (const auto& change : scenario_.training.change_microbatches_at) {
      if (change.step > step) break;
      packs += (change.step - since) * count;
      since = change.step;
      count = change.microbatches;
    }
    return static_cast<std::uint64_t>((packs + (step - since) * count) * scenario_.parallel.data);
  }

  StepData read(std::int64_t step, std::size_t first, std::size_t packs, std::uint64_t skipped,
                Purpose mask) const {
    StepData data;
    const std::int64_t count = global_microbatches(scenario_, step);
    data.microbatches.resize(packs == 0 ? count : 0);  // Without a document.
    for (std::int64_t m = 0; packs != 0 && m < count; ++m) {
      const PieceList& pieces = packs_[first + (skipped + static_cast<std::uint64_t>(m)) % packs];
      data.microbatches.push_back(microbatch(scenario_, pieces, {step, m, 0}, mask));
    }
    finish_step(data);
    return data;
  }

  Microbatch microbatch(const Scenario& scenario, const PieceList& pieces, DrawPlace place,
                        Purpose mask) const {
    Microbatch microbatch;
    for (const Piece& piece : pieces) {
      microbatch.documents.push_back(document(scenario, piece, place, mask));
      ++place.document;
    }
    return microbatch;
  }

  Document document(const Scenario& scenario, const Piece& piece, const DrawPlace& place,
                    Purpose mask) const {
    const RawDocument& raw = documents_[piece.document];
    Document document;
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      document.tokens.push_back(static_cast<unsigned char>(raw.bytes[i]));
    }
    const bool looks_on = !scenario.data.mask.document_end &&
                          scenario.data.long_documents == LongDocuments::split &&
                          piece.end < raw.bytes.size();
    const std::int32_t next = looks_on ? static_cast<unsigned char>(raw.bytes[piece.end]) : -1;
    const auto selectable = [&](std::size_t i) { return may_be_target(raw, piece.begin + i); };
    set_targets(scenario, mask, place, next, selectable, document);
    return document;
  }

  Scenario scenario_;
  std::vector<RawDocument> documents_;
  std::vector<PieceList> packs_;
  std::size_t training_packs_;
};

}  // namespace

std::unique_ptr<DataSource> open_byte_data(const Scenario& scenario) {
  return std::make_unique<ByteSource>(scenario);
}

}  // namespace lockstep
