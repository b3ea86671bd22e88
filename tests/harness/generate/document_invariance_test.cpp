// Properties that the bits of a document may not depend on, asked of random models: the engine
// against itself, with no oracle. arithmetic.md, section 1, "What bits may depend on". Documents,
// their places and a change of these are drawn first, so that a choice that is left out makes them
// simpler; the model comes from the generator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "harness/generate/generator.h"
#include "harness/generate/parts.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "tests/harness/generate/document_rows.h"
#include "tests/harness/generate/random_property.h"

namespace lockstep {
namespace {

constexpr int kScenarios = 10;  // For one property and precision.

// ---- Documents and their places -----------------------------------------------------------------

// Numbers are part of the dropout's key, so that a document keeps its own wherever it goes.
struct Slot {
  std::int32_t number = 0;
  std::int64_t length = 0;
};
using Slots = std::vector<Slot>;  // For a microbatch.

constexpr std::int32_t kChosen =
    7;  // In every packing; only its tokens are in the lower half of the vocabulary.
constexpr std::int32_t kNeighbours = 8, kOtherNeighbours = 100, kEmpties = 200;  // First numbers.

struct Packing {
  std::vector<Slots> microbatches;
  std::int64_t gaps = 0, align = 1, behind = 0;  // `behind`: rows of no slot.
  Tail tail = Tail::extend_last;
};

// Around the width of a convolution, a k16 group, a chunk, the rows of a column sum; seldom, since
// rows are what a case costs, a block of keys.
std::int64_t draw_length(Choices& c) {
  if (c.one_in(10)) return c.pick<std::int64_t>({64, 130});
  return c.pick<std::int64_t>({3, 1, 2, 4, 5, 0, 15, 16, 17, 31, 33});
}
Slots draw_slots(Choices& c, std::int32_t& number) {
  constexpr std::int64_t kMostRows = 64;  // Before the last of them.
  Slots slots;
  std::int64_t rows = 0;
  while (slots.size() < 4 && rows < kMostRows && c.draw(4) != 0) {
    slots.push_back({number++, draw_length(c)});
    rows += slots.back().length;
  }
  return slots;
}
void put_anywhere(Slots& slots, Slot slot, Choices& c) {
  slots.insert(slots.begin() + static_cast<std::ptrdiff_t>(c.draw(slots.size() + 1)), slot);
}

void take_other_gaps(Packing& p, Choices& c) {
  p.gaps = c.pick<std::int64_t>({0, 1, 2, 5, 16});
  p.align = c.pick<std::int64_t>({1, 2, 3, 8, 16});
}
void take_another_tail(Packing& p, Choices& c) {
  p.behind = c.pick<std::int64_t>({0, 1, 15, 40});
  p.tail = c.one_in(2) ? Tail::append_dummy_seq : Tail::extend_last;
}

Packing draw_packing(Choices& c) {
  Packing p;
  std::int32_t number = kNeighbours;
  do {
    p.microbatches.push_back(draw_slots(c, number));
  } while (p.microbatches.size() < 3 && c.one_in(2));
  put_anywhere(p.microbatches[static_cast<std::size_t>(c.draw(p.microbatches.size()))],
               {kChosen, std::max<std::int64_t>(2, draw_length(c))}, c);  // It has a target.
  if (c.one_in(2)) take_other_gaps(p, c);
  if (c.one_in(2)) take_another_tail(p, c);
  return p;
}

// ---- What may change ----------------------------------------------------------------------------

void take_other_neighbours(Packing& p, Choices& c) {
  std::int32_t number = kOtherNeighbours;
  for (Slots& slots : p.microbatches) {
    Slots others = draw_slots(c, number);
    const auto chosen =
        std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return s.number == kChosen; });
    if (chosen != slots.end()) put_anywhere(others, *chosen, c);
    slots = others;
  }
}

void take_another_order(Packing& p, Choices& c) {
  for (Slots& slots : p.microbatches) {
    Slots before = std::exchange(slots, {});
    for (const Slot& slot : before) put_anywhere(slots, slot, c);
  }
}

void take_other_rows_between(Packing& p, Choices& c) {
  take_other_gaps(p, c);
  take_another_tail(p, c);
}

void split_otherwise(Packing& p, Choices& c) {
  std::vector<Slots> before(static_cast<std::size_t>(c.between(1, 4)));
  before.swap(p.microbatches);
  for (const Slots& slots : before) {
    for (const Slot& slot : slots)
      p.microbatches[static_cast<std::size_t>(c.draw(p.microbatches.size()))].push_back(slot);
  }
}

void add_empty_documents(Packing& p, Choices& c) {
  std::int32_t number = kEmpties;
  for (Slots& slots : p.microbatches) {
    do {
      put_anywhere(slots, {number++, 0}, c);
    } while (c.one_in(2));
  }
}

// ---- The scenario -------------------------------------------------------------------------------

std::int64_t rows_needed(const Packing& p, const Slots& slots) {
  std::int64_t rows = 0;
  for (const Slot& slot : slots) rows += slot_rows(slot.length, p.gaps, p.align);
  return rows + p.behind;
}

// Two steps: one that runs eagerly, where there is a warm-up, and one that replays.
Scenario with_packing(Scenario s, const Packing& p) {
  s.data.kind = DataKind::lengths;
  s.data.distribution = {};
  s.data.long_documents = LongDocuments::error;
  s.data.mask.microbatches.clear();
  s.data.documents.assign(1, {});
  s.data.gaps = p.gaps;
  s.data.align = p.align;
  s.data.tail = p.tail;
  s.data.pack_length =
      s.data.distribution
          .median;  // For the default, which would be given if it were cut to fit (L10).
  for (const Slots& slots : p.microbatches) {
    s.data.pack_length = std::max(s.data.pack_length, rows_needed(p, slots));
    MicrobatchLengths& lengths = s.data.documents[0].emplace_back();
    for (const Slot& slot : slots) lengths.push_back(slot.length);
  }
  if (s.numerics.front() != Numerics::fp32)
    s.data.pack_length = (s.data.pack_length + 15) / 16 * 16;
  Scenario::Training& t = s.training;
  t.steps = 2;
  t.eval_every = 0;
  t.recapture_at.clear();
  t.change_microbatches_at.clear();
  t.resume_at.clear();
  t.microbatches = std::ssize(p.microbatches);
  // A graph of everything leaves the values of the last microbatch of each slot.
  t.in_flight = s.cuda_graph.impl == GraphImpl::full_iteration
                    ? t.microbatches
                    : std::min(t.in_flight, t.microbatches);
  t.optimizer.lr_warmup = std::min(t.optimizer.lr_warmup, t.steps);
  s.cuda_graph.warmup_steps = std::min<std::int64_t>(s.cuda_graph.warmup_steps, t.steps - 1);
  if (!check_legality(s).empty()) {
    s.cuda_graph.max_packed_seqs = {64};
    s.cuda_graph.max_seqlen.reset();
  }
  if (!check_legality(s).empty()) s.data.mask = {};
  test::leave_out_what_is_refused(s);
  return s;
}

Scenario draw_scenario(Numerics numerics, Choices& c) {
  Scenario s = test::on_one_rank(generate_scenario(c));
  if (numerics == Numerics::fp8) return test::in_fp8(s, c);
  s.numerics = {numerics};
  if (numerics == Numerics::bf16) widen_for_bf16(s.model);
  return s;
}

// Tokens and masks go with the seed and the number: those that the scenario draws would go with the
// place.
Document document_of(const Scenario& s, Slot slot) {
  std::mt19937_64 random(static_cast<std::uint64_t>(s.training.seed) * 1000 +
                         static_cast<std::uint64_t>(slot.number));
  const std::int64_t half = s.model.vocab / 2;
  const std::int64_t first = slot.number == kChosen ? 0 : half,
                     count = slot.number == kChosen ? half : s.model.vocab - half;
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < slot.length; ++t) {
    tokens.push_back(
        static_cast<std::int32_t>(first + static_cast<std::int64_t>(random() >> 1) % count));
  }
  Document d = test::document(slot.number, tokens);
  for (std::int64_t t = 0; t < slot.length; ++t) {
    const bool masked = t < s.data.mask.prefix || static_cast<std::int64_t>(random() % 1'000'000) <
                                                      s.data.mask.rate.millionths;
    if (masked) d.targets[static_cast<std::size_t>(t)] = -1;
  }
  return d;
}

StepData documents_of(const Scenario& s, const Packing& p) {
  std::vector<Microbatch> microbatches;
  for (const Slots& slots : p.microbatches) {
    Microbatch& m = microbatches.emplace_back();
    for (const Slot& slot : slots) m.documents.push_back(document_of(s, slot));
  }
  return test::step_of(microbatches);
}

// ---- The property -------------------------------------------------------------------------------

struct Side {
  Scenario scenario;
  StepData data;
};

// Left out: experts that drop pairs, which ones is a matter of all rows. The contract exempts every
// capacity; one that has a place for each row drops none, and 2.11 is a sum over a row's own
// experts.
void drop_no_pair(Scenario& s) {
  Scenario::Model::Moe& m = s.model.moe;
  if (!has_experts(s.model) || !m.capacity_factor) return;
  m.experts = std::min<std::int64_t>(m.experts, 4);  // Each has a buffer as long as the pack.
  m.top_k = std::min(m.top_k, m.experts);
  m.capacity_factor = Ratio{(m.experts * 1'000'000 + m.top_k - 1) / m.top_k};
}

// Left out: gradients of weights, which sum rows in their order, and all that follows from them.
// Weights that stay let the second step be compared. And the losses of routers: each row's gradient
// has a share of all rows' balance, or of their number.
void keep_what_documents_have_alone(Scenario& s) {
  drop_no_pair(s);
  s.training.optimizer.lr = s.training.optimizer.min_lr = 0;
  s.model.moe.aux_loss = s.model.moe.z_loss = {};
}

// Left out besides: the bias of an expert, which follows what all documents of the step chose.
void keep_what_no_neighbour_moves(Scenario& s) {
  keep_what_documents_have_alone(s);
  s.model.moe.expert_bias = false;
}

void keep_everything(Scenario&) {}

// Rows of the table that only the chosen document reads: what one document adds has no order among
// documents.
std::string difference_of_chosen_gradient(const Scenario& s, const test::DocumentRows& a,
                                          const test::DocumentRows& b) {
  const std::ptrdiff_t own = s.model.vocab / 2 * s.model.hidden;
  for (std::size_t step = 0; step < a.embedding_gradient.size(); ++step) {
    const auto part = [&](const test::DocumentRows& rows) {
      const std::vector<float>& table = rows.embedding_gradient[step];
      return std::vector<float>(table.begin(), table.begin() + own);
    };
    if (!test::same_bits(part(a), part(b)))
      return "embedding gradient of step " + std::to_string(step);
  }
  return "";
}

std::string difference_of_documents(const Side& before, const Side& after) {
  const test::DocumentRows a = test::rows_of_documents(before.scenario, before.data);
  const test::DocumentRows b = test::rows_of_documents(after.scenario, after.data);
  const std::string difference = test::difference_of_documents(a, b);
  // Left out: a tied table, to which the head adds a sum over all rows.
  if (!difference.empty() || before.scenario.model.tied_embedding) return difference;
  return difference_of_chosen_gradient(before.scenario, a, b);
}

std::string difference_of_everything(const Side& before, const Side& after) {
  return test::difference(test::run(before.scenario, test::FixedData({before.data})),
                          test::run(after.scenario, test::FixedData({after.data})));
}

struct Change {
  void (*edit)(Packing&, Choices&);
  void (*keep)(Scenario&);
  std::string (*difference)(const Side&, const Side&);
};
constexpr Change kNeighbourhood{take_other_neighbours, keep_what_no_neighbour_moves,
                                difference_of_documents},
    kOrder{take_another_order, keep_what_documents_have_alone, difference_of_documents},
    kRowsBetween{take_other_rows_between, keep_what_documents_have_alone, difference_of_documents},
    kSplit{split_otherwise, keep_what_documents_have_alone, difference_of_documents},
    // No row moves, so that all is as it was: weights, losses, and the pairs that a capacity drops.
    kEmptyDocuments{add_empty_documents, keep_everything, difference_of_everything},
    // The same, but that a capacity goes with the length of the pack.
    kRowsBehind{take_another_tail, drop_no_pair, difference_of_everything};

struct Case {
  Side before, after;
  std::string text() const;
};

std::string numbers_of(const StepData& data) {
  std::string text = "# numbers:";
  for (const Microbatch& m : data.microbatches) {
    text += " [";
    for (const Document& d : m.documents)
      text += (&d == &m.documents.front() ? "" : ", ") + std::to_string(d.number);
    text += "]";
  }
  return text + "\n";
}
std::string Case::text() const {
  return numbers_of(before.data) + to_yaml(before.scenario) + "# changed to\n" +
         numbers_of(after.data) + to_yaml(after.scenario);
}

Case draw(const Change& change, Numerics numerics, Choices& c) {
  const Packing before = draw_packing(c);
  Packing after = before;
  change.edit(after, c);
  Scenario drawn = draw_scenario(numerics, c);
  change.keep(drawn);
  Case result;
  result.before.scenario = with_packing(drawn, before);
  drawn.data.mask = result.before.scenario.data.mask;
  result.after.scenario = with_packing(drawn, after);
  result.before.data = documents_of(result.before.scenario, before);
  result.after.data = documents_of(result.before.scenario, after);
  result.after.data.targets = result.before.data.targets;  // The normaliser is held.
  return result;
}

test::Property property(const Change& change, Numerics numerics) {
  return [=](Choices& c) -> std::string {
    const Case drawn = draw(change, numerics, c);
    const std::string wrong = change.difference(drawn.before, drawn.after);
    return wrong.empty() ? "" : wrong + "\n" + drawn.text();
  };
}

constexpr Numerics kBoth[] = {Numerics::fp32, Numerics::bf16};

void hold(const std::string& claim, const Change& change) {
  for (const Numerics numerics : kBoth) {
    test::hold(claim + (numerics == Numerics::fp32 ? " (fp32)" : " (bf16)"),
               property(change, numerics));
  }
}
// In fp8 too: an exponent comes from all rows of a microbatch, so that documents may move in it.
void hold_in_all(const std::string& claim, const Change& change) {
  hold(claim, change);
  test::hold(claim + " (fp8)", [&](Choices& c) -> std::string {
    const Case drawn = draw(change, Numerics::fp8, c);
    const auto text = [](const Side& side) {
      return numbers_of(side.data) + to_yaml(side.scenario);
    };
    if (text(drawn.before) == text(drawn.after)) throw test::NothingToCompare{};
    const std::string wrong = change.difference(drawn.before, drawn.after);
    return wrong.empty() ? "" : wrong + "\n" + drawn.text();
  });
}

class DocumentInvariance : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::draw_at_most(kScenarios); }
};

TEST_F(DocumentInvariance, ADocumentDoesNotSeeItsNeighbours) {
  hold("a document does not see its neighbours", kNeighbourhood);
}
TEST_F(DocumentInvariance, ADocumentDoesNotSeeItsPlaceInThePack) {
  hold_in_all("a document does not see its place in the pack", kOrder);
}
TEST_F(DocumentInvariance, ADocumentDoesNotSeeTheRowsBetween) {
  hold_in_all("a document does not see the rows between documents", kRowsBetween);
}
TEST_F(DocumentInvariance, ADocumentDoesNotSeeTheSplitIntoMicrobatches) {
  hold("a document does not see the split into microbatches", kSplit);
}
TEST_F(DocumentInvariance, NothingDependsOnEmptyDocuments) {
  hold_in_all("nothing depends on empty documents", kEmptyDocuments);
}
TEST_F(DocumentInvariance, NothingDependsOnTheRowsBehindThePack) {
  hold_in_all("nothing depends on the rows behind the pack", kRowsBehind);
}

// ---- Neighbours in fp8 --------------------------------------------------------------------------

// The second of two steps with other neighbours, behind a first that is the same.
struct OtherNeighbours {
  OtherNeighbours(Fp8Recipe recipe, Choices& c) {
    Case drawn = draw(kNeighbourhood, Numerics::fp8, c);
    Scenario& s = drawn.before.scenario;
    s.data.pack_length = std::max(s.data.pack_length, drawn.after.scenario.data.pack_length);
    s.fp8.recipe = recipe;
    drop_no_pair(s);
    if (!check_legality(s).empty()) throw test::NothingToCompare{};
    const StepData &first = drawn.before.data, &other = drawn.after.data;
    before = test::rows_of_documents(s, {first, first});
    after = test::rows_of_documents(s, {first, other});
    text = numbers_of(first) + numbers_of(other) + to_yaml(s);
    for (test::DocumentRows* rows : {&before, &after})
      std::erase_if(rows->activations, [](const auto& one) { return one.first.first == 0; });
    for (std::size_t m = 0; m < first.microbatches.size(); ++m) {
      const auto& documents = first.microbatches[m].documents;
      if (std::ranges::any_of(documents, [](auto& d) { return d.number == kChosen; }))
        own = static_cast<int>(m);
    }
  }
  // Whether words of the chosen document's microbatch whose names end so differ.
  bool moves(const char* suffix) const {
    for (const auto& [name, values] : before.words.at({1, own})) {
      if (name.ends_with(suffix) && values != after.words.at({1, own}).at(name)) return true;
    }
    return false;
  }
  std::string difference() const { return test::difference_of_documents(before, after); }

  test::DocumentRows before, after;
  int own = 0;
  std::string text;
};

std::string change_neighbours_behind_the_first_step(Choices& c) {
  const OtherNeighbours drawn(Fp8Recipe::delayed, c);
  if (!drawn.moves(".x_amax")) throw test::NothingToCompare{};
  const std::string wrong = drawn.difference();
  return wrong.empty() ? "" : wrong + "\n" + drawn.text;
}

TEST_F(DocumentInvariance, ADocumentDoesNotSeeNeighboursWhoseExponentsAreDelayed) {
  test::hold("a document does not see its neighbours behind the first step (fp8, delayed)",
             change_neighbours_behind_the_first_step);
}

// By an exponent that is another by one the codes of most elements stay what they mean, so not
// every such neighbour is seen.
TEST_F(DocumentInvariance, ADocumentSeesNeighboursThatMoveItsExponents) {
  const int wanted = std::max(30, test::scenarios_asked_for(30));
  int moved = 0, seen = 0;
  for (std::uint64_t seed = 1; moved < wanted && seed <= 10ull * wanted; ++seed) {
    Choices c(seed);
    try {
      const OtherNeighbours drawn(Fp8Recipe::current, c);
      if (!drawn.moves(".x_k")) continue;
      ++moved;
      seen += !drawn.difference().empty();
    } catch (const test::NothingToCompare&) {
    }
  }
  std::printf("a document sees neighbours that move its exponents (fp8): %d of %d on %s\n", seen,
              moved, test::device_under_test().c_str());
  EXPECT_EQ(moved, wanted);
  EXPECT_GT(2 * seen, moved);
}

TEST(Packings, AreLegalWhateverIsDrawn) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    for (const Change& change :
         {kNeighbourhood, kOrder, kRowsBetween, kSplit, kEmptyDocuments, kRowsBehind}) {
      Choices c(seed);
      constexpr Numerics kAll[] = {Numerics::fp32, Numerics::bf16, Numerics::fp8};
      const Case drawn = draw(change, kAll[seed % 3], c);
      for (const Side& side : {drawn.before, drawn.after}) {
        const std::vector<ScenarioError> errors = check_legality(side.scenario);
        ASSERT_TRUE(errors.empty()) << errors.front().text() << "\n" << drawn.text();
      }
    }
  }
}

// ---- And it can fail ----------------------------------------------------------------------------

void expect_seen(const char* fault, const Change& change) {
  for (const Numerics numerics : kBoth) {
    EXPECT_TRUE(test::is_seen(fault, property(change, numerics)))
        << fault << ", bf16: " << (numerics == Numerics::bf16);
  }
}

TEST_F(DocumentInvariance, IsBrokenByPlantedFaults) {
  expect_seen("attention-leaks-previous-document", kNeighbourhood);
  expect_seen("conv-tap-crosses-boundary", kNeighbourhood);
  expect_seen("scan-keeps-state-across-documents", kNeighbourhood);
  expect_seen("target-of-the-next-document", kNeighbourhood);
  expect_seen("conv-backward-crosses-boundary", kOrder);
  expect_seen("dispatch-takes-the-next-row", kOrder);
  expect_seen("pack-metadata-positions-never-restart", kRowsBetween);
  expect_seen("rope-positions-of-the-pack", kRowsBetween);
  expect_seen("pack-metadata-number-of-first-slot", kSplit);
  expect_seen("pack-metadata-number-of-first-slot", kEmptyDocuments);
  expect_seen("padding-row-has-a-target", kRowsBehind);
  expect_seen("router-loss-counts-padding-rows", kRowsBehind);
  EXPECT_TRUE(test::is_seen("dispatch-takes-the-next-row", property(kOrder, Numerics::fp8)));
  EXPECT_TRUE(test::is_seen("rope-positions-of-the-pack", property(kRowsBetween, Numerics::fp8)));
  EXPECT_TRUE(test::is_seen("fp8-rolls-in-every-pass", change_neighbours_behind_the_first_step));
  EXPECT_FALSE(test::is_seen("", property(kOrder, Numerics::fp32)));
}

}  // namespace
}  // namespace lockstep
