// R6 to R9 and R11: documents and microbatches, which must not see each other.
#include <algorithm>
#include <numeric>

#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/schema/words.h"

namespace lockstep::foreign {
namespace {

struct HalfName {
  Half half;
  const char* choice;
  const char* text;
};
constexpr HalfName kHalves[] = {{Half::even, "half=even", "even"}, {Half::odd, "half=odd", "odd"}};

bool takes(const Choices& choices, const HalfName& one) { return choices.takes("half", one.text); }

// The rows of those documents, in every tensor of a microbatch that has rows.
std::vector<TensorPair> rows_of(const EngineRun& run, const Documents& documents) {
  std::vector<TensorPair> pairs;
  for (const TensorId& id : run.order) {
    const auto& parts = run.tensors.at(id).by_document;
    if (!id.is_of_a_microbatch() || !parts) continue;
    for (std::int64_t i = 0; i < std::ssize(*parts); ++i) {
      if (documents({.at = id.at, .microbatch = id.microbatch, .document = i}))
        pairs.push_back({.a = id, .b = id, .document_a = i, .document_b = i});
    }
  }
  return pairs;
}

bool losses_differ(const EngineCase& one, const EngineRun& a, const EngineRun& b) {
  return !one.differing(a, b, EngineCase::pairs_of(a, b, {"token_loss"}), false).empty();
}

// The bucket that each pack of training takes, and whether it fits any.
std::vector<std::int64_t> buckets_of(const Scenario& scenario, const EngineFeed& feed) {
  std::vector<std::int64_t> taken;
  for (const auto& [place, microbatches] : feed.packs) {
    for (const Microbatch& one : microbatches) {
      const std::int64_t slots = slots_in_use(scenario.data, one);
      const auto& sizes = scenario.cuda_graph.max_packed_seqs;
      taken.push_back(std::find_if(sizes.begin(), sizes.end(),
                                   [&](std::int64_t size) { return size >= slots; }) -
                      sizes.begin());
    }
  }
  return taken;
}

// One slot more in each bucket, where every pack then takes the same one. NotApplicable else.
RunRequest with_larger_capacity(const EngineCase& one) {
  RunRequest larger = variant(
      one,
      [](Scenario& s) {
        for (std::int64_t& size : s.cuda_graph.max_packed_seqs) ++size;
      },
      "the run with one slot more");
  if (buckets_of(one.scenario(), one.feed()) != buckets_of(larger.scenario, one.feed()))
    throw NotApplicable("with one slot more, a pack takes another bucket");
  return larger;
}

// Rows whose loss tells that their documents, those that are not kept, were replaced.
struct TellingRows {
  std::int64_t training = 0, evaluation = 0;
  std::int64_t all() const { return training + evaluation; }
};

TellingRows rows_with_targets(const EngineFeed& feed, const Documents& kept) {
  TellingRows rows;
  for (const auto& [place, microbatches] : feed.packs) {
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      const std::vector<Document>& documents = at(microbatches, g).documents;
      for (std::int64_t i = 0; i < std::ssize(documents); ++i) {
        if (kept({.at = place, .microbatch = g, .document = i})) continue;
        (place.evaluation ? rows.evaluation : rows.training) += std::ranges::count_if(
            at(documents, i).targets, [](auto target) { return target >= 0; });
      }
    }
  }
  return rows;
}

// A row's logits are 0 for any token, and its loss tells nothing, if dropout takes all elements of
// its embedding and of what layers add to it. If this many are expected to stay, the chance that
// none does is e^-32.
constexpr double kLeastKept = 32;

bool may_all_be_dropped(const EngineCase& one, const TellingRows& rows) {
  const double stays = 1 - one.scenario().model.dropout.value();
  const double kept =
      static_cast<double>(one.scenario().model.hidden) *
      (stays * static_cast<double>(rows.training) + static_cast<double>(rows.evaluation));
  return stays < 1 && kept < kLeastKept;
}

std::int64_t microbatches_of_a_step(const EngineFeed& feed) { return std::ssize(feed.training(0)); }

}  // namespace

std::string has_neighbours(const EngineCase& one) {
  if (std::string why = why_scales_mix(one); !why.empty()) return why;
  if (std::string why = why_weights_move(one); !why.empty()) return why;
  if (std::string why = why_documents_mix(one); !why.empty()) return why;
  return why_no_two_halves(one);
}

void neighbours(EngineCase& one, const Choices& choices) {
  bool done = false;
  RunRequest given = one.asked_with(frozen(one.feed()));
  given.what = "the run as asked for, with a learning rate of 0";
  const EngineRun a = one.run(given);
  for (const HalfName& half : kHalves) {
    if (!takes(choices, half)) continue;
    const Documents kept = half_of(one.feed(), half.half);
    const TellingRows others = rows_with_targets(given.feed, kept);
    if (others.all() == 0) continue;
    RunRequest replaced = one.asked_with(with_others_replaced(given.feed, kept));
    replaced.what =
        std::string("the one in which all but the ") + half.text + " documents have other tokens";
    const EngineRun b = one.run(replaced);
    one.expect_equal({.a = given, .b = replaced, .choices = half.choice}, a, b, rows_of(a, kept));
    const bool told = !one.hello().observes_kind("token_loss") || losses_differ(one, a, b);
    if (!told && !may_all_be_dropped(one, others))
      throw_vacuous("other tokens change no loss", half.choice);
    done = done || told;
  }
  if (!done)
    throw NotApplicable(
        "the neighbours of each half have no target, or dropout may take all of them");
}

void one_voice_document(EngineCase& one, const Choices& choices) {
  bool heard = false;
  for (const HalfName& half : kHalves) {
    if (!takes(choices, half)) continue;
    const Documents kept = half_of(one.feed(), half.half);
    RunRequest voice = one.asked_with(with_voice(frozen(one.feed()), kept));
    voice.what = std::string("the run in which the ") + half.text + " documents have targets";
    RunRequest replaced = one.asked_with(with_others_replaced(voice.feed, kept));
    replaced.what = "the one in which the others have other tokens too";
    const EngineRun a = one.run(voice), b = one.run(replaced);
    one.expect_equal({.a = voice, .b = replaced, .choices = half.choice, .padding_too = false}, a,
                     b, EngineCase::pairs_of(a, b, {"gradient", "token_loss"}));
    heard = heard || a.has_gradient();
  }
  if (one.hello().observes_kind("gradient") && !heard) throw NotApplicable(kNoGradient);
}

std::string has_padding(const EngineCase& one) {
  if (one.hello().padding_zero) return "";
  if (!one.honours("feed.padding_token") && !one.honours("cuda_graph.max_packed_seqs"))
    return "neither the padding's token nor the capacity is honoured";
  return "";
}

// True where rows of no document were looked at.
static bool expect_zero_padding(EngineCase& one) {
  if (!one.hello().padding_zero) return false;
  const EngineRun& base = one.base();
  bool any = false;
  for (const TensorId& id : base.order) {
    const TensorEntry& entry = base.tensors.at(id);
    if (!entry.by_document) continue;
    if (entry.outside > 0)
      throw Violated{.reason = id.text() + " has " + std::to_string(entry.outside) +
                               " elements that are not 0 in rows of no document, and the engine "
                               "claims that these are 0",
                     .choices = "variant=zero"};
    std::int64_t rows = 0;
    for (const auto& [begin, end] : base.rows.at({id.at, id.microbatch})) rows += end - begin;
    any = any || rows < one.scenario().data.pack_length;
  }
  return any;
}

void padding(EngineCase& one, const Choices& choices) {
  bool done = choices.takes("variant", "zero") && expect_zero_padding(one);
  std::string why = "not asked for";
  if (one.honours("feed.padding_token") && choices.takes("variant", "token")) {
    RunRequest other = one.asked();
    other.feed.padding_token = static_cast<std::int32_t>(one.feed().vocab - 1);
    other.what = "the run with another padding token";
    expect_base(one, other, "variant=token", {}, false);
    done = true;
  }
  const bool graphs = one.scenario().cuda_graph.impl != GraphImpl::none;
  if (graphs && one.honours("cuda_graph.max_packed_seqs") && choices.takes("variant", "capacity")) {
    try {
      expect_base(one, with_larger_capacity(one), "variant=capacity", {}, false);
      done = true;
    } catch (const NotApplicable& reason) {
      why = reason.what();
    }
  }
  if (!done) throw NotApplicable(graphs ? why : "no row is of no document, and no graphs");
}

std::string is_row_invariant(const EngineCase& one) {
  const std::string numerics = to_text(one.scenario().numerics.front());
  if (!one.hello().row_invariant.contains(numerics))
    return std::string("the engine does not claim row_invariant in ") + numerics;
  if (std::string why = why_weights_move(one); !why.empty()) return why;
  if (std::string why = why_documents_mix(one); !why.empty()) return why;
  return why_no_two_halves(one);
}

void place(EngineCase& one, const Choices&) {
  RunRequest given = one.asked_with(frozen(one.feed()));
  given.what = "the run as asked for, with a learning rate of 0";
  RunRequest reversed = one.asked_with(with_documents_reversed(given.feed));
  reversed.what = "the one with documents in reverse order";
  const EngineRun a = one.run(given), b = one.run(reversed);
  std::vector<TensorPair> pairs;
  for (const TensorPair& pair : rows_of(a, [](const DocumentPlace&) { return true; })) {
    if (pair.a.kind != "token_loss" && pair.a.kind != "activation") continue;
    const std::int64_t count = std::ssize(*a.tensors.at(pair.a).by_document);
    pairs.push_back(pair);
    pairs.back().document_b = count - 1 - pair.document_a;
  }
  one.expect_equal({.a = given, .b = reversed}, a, b, pairs);
}

std::string has_two_microbatches(const EngineCase& one) {
  if (std::string why = why_weights_move(one); !why.empty()) return why;
  if (std::string why = why_documents_mix(one); !why.empty()) return why;
  const std::int64_t count = microbatches_of_a_step(one.feed());
  if (count < 2) return "one microbatch in a step";
  for (std::int64_t step = 0; step < one.feed().steps; ++step) {
    if (std::ssize(one.feed().training(step)) != count) return "the number of microbatches changes";
  }
  return one.scenario().model.dropout.millionths == 0 ? ""
                                                      : "dropout depends on a document's place";
}

void one_voice_microbatch(EngineCase& one, const Choices& choices) {
  const std::int64_t count = microbatches_of_a_step(one.feed());
  std::vector<std::int64_t> rotated(count);
  std::iota(rotated.begin(), rotated.end(), 1);
  rotated.back() = 0;
  bool heard = false;
  for (const std::int64_t g : {std::int64_t{0}, count - 1}) {
    const std::string choice = "microbatch=" + std::to_string(g);
    if (!choices.takes("microbatch", std::to_string(g))) continue;
    const Documents speaks = [g](const DocumentPlace& place) { return place.microbatch == g; };
    RunRequest voice = one.asked_with(with_voice(frozen(one.feed()), speaks));
    voice.what = "the run in which microbatch " + std::to_string(g) + " has targets";
    RunRequest moved = one.asked_with(with_microbatches_in(rotated, voice.feed));
    moved.what = "the one with microbatches in another order";
    RunRequest replaced = one.asked_with(with_others_replaced(voice.feed, speaks));
    replaced.what = "the one in which the others have other tokens too";
    const EngineRun a = one.run(voice);
    std::vector<const RunRequest*> others{&moved};
    if (!has_delayed_scales(one)) others.push_back(&replaced);
    for (const RunRequest* other : others) {
      const EngineRun b = one.run(*other);
      one.expect_equal({.a = voice, .b = *other, .choices = choice}, a, b,
                       EngineCase::pairs_of(a, b, {"gradient"}));
    }
    heard = heard || a.has_gradient();
  }
  if (!heard) throw NotApplicable(kNoGradient);
}

}  // namespace lockstep::foreign
