// L07..L12: documents, packs and masks.
#include <exception>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/documents/targets.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

std::string list_key(std::size_t step, std::size_t microbatch) {
  return "data.documents[" + to_string(step) + "][" + to_string(microbatch) + "]";
}

// Lengths of the byte documents; none where they cannot be read, which is another rule's matter
// (Y08).
MicrobatchLengths byte_lengths(const Scenario& scenario) try {
  MicrobatchLengths lengths;
  for (const RawDocument& document : read_raw_documents(scenario))
    lengths.push_back(std::ssize(document.bytes));
  return lengths;
} catch (const std::exception&) {
  return {};
}

// The same documents, each cut to what the ones before it leave; none of the rows is taken twice.
MicrobatchLengths cut_to_fit(const Scenario::Data& data, MicrobatchLengths lengths) {
  std::int64_t left = data.pack_length;
  for (std::int64_t& length : lengths) {
    length = std::clamp<std::int64_t>(left / data.align * data.align - data.gaps, 0, length);
    left -= slot_rows(length, data.gaps, data.align);
  }
  return lengths;
}

Findings documents_are_no_longer_than_a_pack(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  if (data.long_documents != LongDocuments::error) return {};
  const auto detail = [&](std::int64_t length) {
    return to_string(length) + " of " + to_string(data.pack_length);
  };
  Findings findings;
  if (reads_bytes(scenario.data)) {
    const MicrobatchLengths lengths = byte_lengths(scenario);
    if (lengths.empty() || std::ranges::max(lengths) <= data.pack_length) return {};
    return {{"data.long_documents", "split", detail(std::ranges::max(lengths))}};
  }
  if (data.kind != DataKind::lengths) return {};
  for (std::size_t s = 0; s < data.documents.size(); ++s) {
    for (std::size_t m = 0; m < data.documents[s].size(); ++m) {
      MicrobatchLengths lengths = data.documents[s][m];
      if (lengths.empty() || std::ranges::max(lengths) <= data.pack_length) continue;
      const std::int64_t longest = std::ranges::max(lengths);
      for (std::int64_t& length : lengths) length = std::min(length, data.pack_length);
      if (pack_rows(data, lengths) > data.pack_length) lengths = cut_to_fit(data, lengths);
      findings.push_back({list_key(s, m), list_text(lengths), detail(longest)});
    }
  }
  return findings;
}

// A document that alone is longer than a pack is another rule's matter: L07, or L09 where it was to
// be split.
Findings listed_slots_fit_the_pack(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  Findings findings;
  for (std::size_t s = 0; s < data.documents.size(); ++s) {
    for (std::size_t m = 0; m < data.documents[s].size(); ++m) {
      const MicrobatchLengths lengths =
          microbatch_lengths(scenario, static_cast<std::int64_t>(s), static_cast<std::int64_t>(m));
      const std::int64_t rows = pack_rows(data, lengths);
      if (rows <= data.pack_length || std::ranges::max(lengths) > data.pack_length) continue;
      findings.push_back({list_key(s, m), list_text(cut_to_fit(data, lengths)),
                          to_string(rows) + " of " + to_string(data.pack_length)});
    }
  }
  return findings;
}

// If no document of two tokens has room, the documents are not to blame: finds the largest value
// with which all fit.
Findings rows_around_documents_leave_room(const Scenario& scenario) {
  Findings findings = listed_slots_fit_the_pack(scenario);
  if (findings.empty() || longest_fitting(scenario.data) >= 2) return findings;
  for (const auto& [key, member] :
       {std::pair{"data.align", &Scenario::Data::align}, {"data.gaps", &Scenario::Data::gaps}}) {
    Scenario other = scenario;
    const auto least = std::int64_t{member == &Scenario::Data::align};
    for (std::int64_t value = scenario.data.*member - 1; value >= least; --value) {
      other.data.*member = value;
      if (listed_slots_fit_the_pack(other).empty())
        return {{key, to_string(value), findings.front().detail}};
    }
  }
  return findings;
}

Findings slot_rows_fit_the_pack(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  if (data.kind == DataKind::lengths) return rows_around_documents_leave_room(scenario);
  // A drawn or cut document is as short as need be, so all is well if one token fits; with two
  // there is a target.
  if (longest_fitting(data) < 1) {
    const std::string rows = to_string(slot_rows(1, data.gaps, data.align));
    const std::string detail = "one token takes " + rows + " of " + to_string(data.pack_length);
    if (data.align > data.pack_length) return {{"data.align", to_string(data.pack_length), detail}};
    const std::int64_t aligned = data.pack_length / data.align * data.align;
    return {{"data.gaps", to_string(std::max<std::int64_t>(0, aligned - 2)), detail}};
  }
  if (!reads_bytes(scenario.data) || data.long_documents != LongDocuments::error) return {};
  const MicrobatchLengths lengths = byte_lengths(scenario);
  if (lengths.empty()) return {};
  const std::int64_t longest = std::ranges::max(lengths);
  if (longest <= longest_fitting(data) || longest > data.pack_length) return {};
  return {{"data.long_documents", "split",
           to_string(slot_rows(longest, data.gaps, data.align)) + " of " +
               to_string(data.pack_length)}};
}

Findings split_needs_bytes(const Scenario& scenario) {
  if (scenario.data.long_documents != LongDocuments::split || reads_bytes(scenario.data)) return {};
  return {{"data.long_documents", "truncate", ""}};
}

bool same_distribution(const Scenario::Data::Distribution& a,
                       const Scenario::Data::Distribution& b) {
  const auto all = [](const Scenario::Data::Distribution& d) {
    return std::tie(d.shape, d.min, d.max, d.median, d.sigma, d.empty, d.fill, d.seed, d.histogram);
  };
  return all(a) == all(b);
}

std::string documents_text(const std::vector<std::vector<MicrobatchLengths>>& documents) {
  std::vector<std::string> steps;
  for (const auto& step : documents) {
    std::vector<std::string> microbatches;
    for (const MicrobatchLengths& lengths : step) microbatches.push_back(list_text(lengths));
    steps.push_back(list_text(microbatches));
  }
  return list_text(steps);
}

// A value that differs from the default was given.
Findings sources_belong_to_their_kind(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  Scenario::Data defaults;
  // The default median of a pack that is shorter is the pack's length.
  defaults.distribution.median = std::min(defaults.distribution.median, data.pack_length);
  const bool documents = data.documents != defaults.documents,
             distribution = !same_distribution(data.distribution, defaults.distribution),
             path = data.path != defaults.path, bytes = path || data.digest != defaults.digest;
  // If several were given, the one of the kind stays and the others go.
  const bool one = documents + distribution + bytes == 1;
  const std::string kind = "kind " + word(data.kind);
  Findings findings;
  if (data.kind != DataKind::lengths && documents) {
    findings.push_back(
        {"data.documents", one ? "kind: lengths" : documents_text(defaults.documents), kind});
  }
  if (data.kind != DataKind::distribution && distribution) {
    findings.push_back({"data.distribution", one ? "kind: distribution" : "{}", kind});
  }
  if (!reads_bytes(scenario.data) && bytes) {
    findings.push_back({path ? "data.path" : "data.digest",
                        one    ? "kind: text"
                        : path ? defaults.path
                               : "\"\"",
                        kind});
  }
  return findings;
}

// What is wrong with the pairs of a histogram.
std::string fault_of_pairs(const std::vector<std::vector<std::int64_t>>& pairs) {
  constexpr std::int64_t kMostDocuments = 65536, kMostPacks = 2147483647;
  if (pairs.empty()) return "no pair";
  std::int64_t before = -1, packs = 0;
  for (const auto& pair : pairs) {
    const std::int64_t documents = pair.front(), more = pair.back();
    if (documents > kMostDocuments) return to_string(documents) + " documents";
    if (documents <= before) return "documents that do not increase";
    if (more < 1) return "no pack of " + to_string(documents) + " documents";
    before = documents;
    packs += more;
  }
  return packs > kMostPacks ? "more than 2147483647 packs" : "";
}

Findings histogram_belongs_to_its_shape(const Scenario& scenario) {
  const Scenario::Data::Distribution& d = scenario.data.distribution;
  if (scenario.data.kind != DataKind::distribution) return {};
  if (d.shape == Shape::histogram) {
    const std::string fault = fault_of_pairs(d.histogram);
    if (fault.empty()) return {};
    return {{"data.distribution.histogram", "[[1, 1]]", fault}};
  }
  if (d.histogram.empty()) return {};
  return {{"data.distribution.histogram", "[]", "shape " + word(d.shape)}};
}

std::int64_t most_global_microbatches(const Scenario& scenario) {
  std::int64_t most = global_microbatches(scenario, 0);
  for (const auto& change : scenario.training.change_microbatches_at) {
    if (change.step < scenario.training.steps)
      most = std::max(most, global_microbatches(scenario, change.step));
  }
  return most;
}

Findings masked_microbatches_exist(const Scenario& scenario) {
  const std::int64_t count = most_global_microbatches(scenario);
  std::vector<std::int64_t> legal;
  std::vector<bool> seen(static_cast<std::size_t>(count));
  bool refused = false;
  for (const std::int64_t number : scenario.data.mask.microbatches) {
    refused = refused || number < 0 || number >= count;
    const std::int64_t nearest = std::clamp<std::int64_t>(number, 0, count - 1);
    if (!seen[static_cast<std::size_t>(nearest)]) legal.push_back(nearest);
    seen[static_cast<std::size_t>(nearest)] = true;
  }
  if (!refused) return {};
  return {{"data.mask.microbatches", list_text(legal),
           list_text(scenario.data.mask.microbatches) + " of " + to_string(count)}};
}

Findings roles_need_jsonl(const Scenario& scenario) {
  const Scenario::Data::Mask defaults;
  if (scenario.data.kind == DataKind::jsonl || scenario.data.mask.roles == defaults.roles)
    return {};
  return {{"data.mask.roles", list_text(defaults.roles), "kind " + word(scenario.data.kind)}};
}

Findings looking_on_needs_split(const Scenario& scenario) {
  if (scenario.data.mask.document_end || scenario.data.long_documents == LongDocuments::split)
    return {};
  return {
      {"data.mask.document_end", "true", "long_documents " + word(scenario.data.long_documents)}};
}

// Takes the rows that it looks at from `rows_left`, and says true when none are left.
bool microbatch_has_target(const Scenario& scenario, DrawPlace place,
                           const MicrobatchLengths& lengths, std::int64_t& rows_left) {
  // No need to draw for every row.
  const Scenario::Data::Mask& mask = scenario.data.mask;
  if (mask.rate.millionths == 1'000'000 || is_masked(mask, place.microbatch)) return false;
  for (const std::int64_t length : lengths) {
    for (std::int64_t row = mask.prefix; row + 1 < length; ++row) {
      if (--rows_left < 0 || has_loss(scenario, Purpose::mask, place, row)) return true;
    }
    ++place.document;
  }
  return false;
}

// Whether some step has a target; true also where the search is too long.
bool drawn_data_has_target(const Scenario& scenario) {
  std::int64_t work = 0, rows_left = 4 * kMostWork;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    for (std::int64_t m = 0; m < global_microbatches(scenario, step); ++m) {
      const MicrobatchLengths lengths = microbatch_lengths(scenario, step, m);
      if (microbatch_has_target(scenario, {step, m, 0}, lengths, rows_left)) return true;
      work += 1 + std::ssize(lengths) + std::ssize(scenario.data.mask.microbatches) / 16;
      if (work > kMostWork) return true;
    }
  }
  return false;
}

bool byte_data_has_target(const Scenario& scenario) try {
  // A step is read as a whole, so its rows must fit a small machine's memory.
  if (most_global_microbatches(scenario) * scenario.data.pack_length > 8 * kMostWork) return true;
  const std::unique_ptr<DataSource> source = open_data(scenario);
  // The faults of a row; every document is looked for in the list of masked microbatches.
  const std::int64_t looks = 1 + std::ssize(scenario.data.mask.microbatches) / 64;
  std::int64_t work = 0;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    const StepData data = source->training(step);
    if (data.targets > 0) return true;
    work += std::ssize(data.microbatches) * scenario.data.pack_length * looks;
    if (work > kMostWork) return true;
  }
  return false;
} catch (const std::exception&) {
  return true;  // It cannot be read, or fits no pack: other rules say so.
}

bool has_target(const Scenario& scenario) {
  return reads_bytes(scenario.data) ? byte_data_has_target(scenario)
                                    : drawn_data_has_target(scenario);
}

std::int64_t longest_listed(const Scenario& scenario) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s < scenario.data.documents.size(); ++s) {
    for (std::size_t m = 0; m < scenario.data.documents[s].size(); ++m) {
      for (const std::int64_t length : microbatch_lengths(scenario, s, m))
        longest = std::max(longest, length);
    }
  }
  return longest;
}

// A request that can be taken back, or made larger, so that there may be a target.
struct Cure {
  Finding finding;
  std::function<void(Scenario&)> apply;
};

// If no document of two tokens fits a pack, the pack is too short for anything else to help.
std::int64_t rows_for_two_tokens(const Scenario& scenario) {
  const std::int64_t rows = slot_rows(2, scenario.data.gaps, scenario.data.align);
  return lists_bf16_or_fp8(scenario) ? slot_rows(rows, 0, 16) : rows;  // L03.
}

constexpr const char* kTooShort = "no document of two tokens";

void add_cures_of_masks(const Scenario& scenario, std::vector<Cure>& cures) {
  const Scenario::Data::Mask& mask = scenario.data.mask;
  const bool listed = scenario.data.kind == DataKind::lengths;
  const std::int64_t prefix = listed ? std::max<std::int64_t>(0, longest_listed(scenario) - 2) : 0;
  if (prefix < mask.prefix) {
    cures.push_back({{"data.mask.prefix", to_string(prefix), to_string(mask.prefix)},
                     [=](Scenario& s) { s.data.mask.prefix = prefix; }});
  }
  if (mask.rate.millionths > 0) {
    cures.push_back({{"data.mask.rate", "0", ""}, [](Scenario& s) { s.data.mask.rate = {}; }});
  }
  if (!mask.microbatches.empty()) {
    cures.push_back({{"data.mask.microbatches", "[]", ""},
                     [](Scenario& s) { s.data.mask.microbatches.clear(); }});
  }
}

void add_cures_of_documents(const Scenario& scenario, std::vector<Cure>& cures) {
  const Scenario::Data& data = scenario.data;
  if (longest_fitting(data) < 2) {
    const std::int64_t rows = rows_for_two_tokens(scenario);
    cures.push_back({{"data.pack_length", to_string(rows), kTooShort},
                     [=](Scenario& s) { s.data.pack_length = rows; }});
  }
  if (data.kind == DataKind::lengths && longest_listed(scenario) < 2) {
    cures.push_back({{"data.documents", "[[[2]]]", kTooShort},
                     [](Scenario& s) { s.data.documents = {{{2}}}; }});
  }
  if (data.kind != DataKind::distribution) return;
  const Scenario::Data::Distribution& given = data.distribution;
  if (given.empty > Ratio{}) {
    cures.push_back({{"data.distribution.empty", "0", ""},
                     [](Scenario& s) { s.data.distribution.empty = {}; }});
  }
  if (data.pack_length * given.fill.millionths < 1'000'000 * slot_rows(2, data.gaps, data.align)) {
    cures.push_back({{"data.distribution.fill", "1", ""},
                     [](Scenario& s) { s.data.distribution.fill = {1'000'000}; }});
  }
  if (given.max < 2) {
    cures.push_back(
        {{"data.distribution.max", "2", ""}, [](Scenario& s) { s.data.distribution.max = 2; }});
  }
}

std::vector<Cure> cures_of(const Scenario& scenario) {
  std::vector<Cure> cures;
  add_cures_of_masks(scenario, cures);
  if (reads_bytes(scenario.data) && scenario.training.eval_every > 0) {
    cures.push_back({{"training.eval_every", "0", "evaluation keeps the only pack"},
                     [](Scenario& s) { s.training.eval_every = 0; }});
  }
  add_cures_of_documents(scenario, cures);
  return cures;
}

bool helps(const std::vector<Cure>& cures, Scenario scenario) {
  for (const Cure& cure : cures) cure.apply(scenario);
  return documents_are_no_longer_than_a_pack(scenario).empty() &&
         slot_rows_fit_the_pack(scenario).empty() && has_target(scenario);
}

// If no key helps, the documents themselves are at fault.
Finding other_documents(const Scenario& scenario) {
  if (scenario.data.kind == DataKind::lengths) return {"data.documents", "[[[2]]]", kTooShort};
  if (scenario.data.kind == DataKind::distribution) return {"data.distribution", "{}", kTooShort};
  const MicrobatchLengths lengths = byte_lengths(scenario);
  if (scenario.data.kind == DataKind::jsonl && !lengths.empty() && std::ranges::max(lengths) >= 2) {
    return {"data.mask.roles", "a role that has contents there",
            list_text(scenario.data.mask.roles)};
  }
  return {"data.path", "documents of two bytes", kTooShort};
}

// Names the one request that is in the way; if it is several, those without which the others would
// not help.
Findings some_step_has_a_target(const Scenario& scenario) {
  if (!documents_are_no_longer_than_a_pack(scenario).empty() || has_target(scenario)) return {};
  std::vector<Cure> cures = cures_of(scenario);
  for (const Cure& cure : cures) {
    if (helps({cure}, scenario)) return {cure.finding};
  }
  if (!helps(cures, scenario)) return {other_documents(scenario)};
  for (std::size_t i = cures.size(); i-- > 0;) {
    std::vector<Cure> others = cures;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (helps(others, scenario)) cures = others;
  }
  Findings findings;
  for (const Cure& cure : cures) findings.push_back(cure.finding);
  return findings;
}

}  // namespace

std::span<const Rule> data_rules() {
  static constexpr Rule kRules[] = {
      {"L07", "a document is longer than pack_length",
       "it fits no pack; error is the policy asked for", documents_are_no_longer_than_a_pack,
       "data.documents data.long_documents data.pack_length", "data: {documents: [[[65]]]}"},
      {"L08", "the slot rows of a microbatch exceed pack_length", "gaps and align count",
       slot_rows_fit_the_pack,
       "data.documents data.pack_length data.gaps data.align data.long_documents",
       "data: {documents: [[[40, 25]]]}"},
      {"L09", "split needs text or jsonl", "a literal list says what is packed where",
       split_needs_bytes, "data.long_documents data.kind", "data: {long_documents: split}"},
      {"L10", "documents, distribution and path belong to one kind each",
       "the other would be ignored", sources_belong_to_their_kind,
       "data.kind data.documents data.distribution data.path data.digest", "data: {path: texts}"},
      {"L10", "shape histogram needs a histogram, of at most 2147483647 packs; others have none",
       "counts would be made up or ignored", histogram_belongs_to_its_shape,
       "data.distribution.histogram data.distribution.shape",
       "data: {kind: distribution, distribution: {histogram: [[1, 1]]}}"},
      {"L11", "mask: no such microbatch", "would mask nothing", masked_microbatches_exist,
       "data.mask.microbatches training.microbatches training.change_microbatches_at parallel.data",
       "data: {mask: {microbatches: [2]}}"},
      {"L11", "mask: roles given need jsonl", "would mask nothing", roles_need_jsonl,
       "data.mask.roles data.kind", "data: {mask: {roles: [user]}}"},
      {"L11", "mask: document_end false needs split", "the target would lie in another document",
       looking_on_needs_split, "data.mask.document_end data.long_documents",
       "data: {mask: {document_end: false}}"},
      {"L12", "no step has a target", "every loss would be zero: vacuous", some_step_has_a_target,
       "data.mask data.documents data.distribution", "data: {mask: {prefix: 64}}"},
  };
  return kRules;
}

}  // namespace lockstep
