// Fewer and shorter documents: layouts, microbatches and documents are containers that lose whole
// items first.
#include "scenarios/documents/documents.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "harness/shrink/rules.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

using Lists = std::vector<StepLengths>;
using Candidates = std::vector<Scenario>;

Scenario with_documents(Scenario s, Lists documents) {
  s.data.documents = std::move(documents);
  return s;
}

template <class Edit>
Scenario every_list(const Scenario& s, const Edit& edit) {
  Scenario one = s;
  for (StepLengths& step : one.data.documents) {
    for (MicrobatchLengths& list : step) edit(list);
  }
  return one;
}

// Other sources become the list of lengths that they yielded, so that single documents can be taken
// out.
Candidates written_out(const Scenario& s) {
  if (s.data.kind == DataKind::lengths) return {};
  Lists lists;
  const auto data = open_data(s);
  for (std::int64_t step = 0; step < s.training.steps; ++step) {
    StepLengths& lengths = lists.emplace_back();
    for (const Microbatch& microbatch : data->training(step).microbatches) {
      lengths.emplace_back();
      for (const Document& document : microbatch.documents)
        lengths.back().push_back(std::ssize(document.tokens));
    }
  }
  Scenario one = with_documents(s, std::move(lists));
  const Scenario plain;
  one.data.kind = DataKind::lengths;
  one.data.path = plain.data.path;
  one.data.digest.clear();
  one.data.distribution = plain.data.distribution;
  one.data.mask.roles = plain.data.mask.roles;
  one.data.mask.document_end = true;
  one.data.long_documents = LongDocuments::error;
  return {one};
}

// Longer than a pack, as they are cut.
Candidates cut_documents(const Scenario& s) {
  if (s.data.kind != DataKind::lengths || s.data.long_documents != LongDocuments::truncate)
    return {};
  Scenario one = every_list(s, [&](MicrobatchLengths& list) {
    for (std::int64_t& length : list) length = std::min(length, s.data.pack_length);
  });
  one.data.long_documents = LongDocuments::error;
  return {one};
}

// One microbatch's list for all.
Candidates one_list(const Scenario& s) {
  const Lists& lists = s.data.documents;
  if (lists.size() == 1 && lists[0].size() == 1) return {};
  Candidates candidates;
  for (const StepLengths& step : lists) {
    for (const MicrobatchLengths& list : step) candidates.push_back(with_documents(s, {{list}}));
  }
  return candidates;
}

Candidates fewer_layouts(const Scenario& s) {
  Candidates candidates;
  for (const auto& range : removals(s.data.documents.size())) {
    Lists left = without(s.data.documents, range);
    if (!left.empty()) candidates.push_back(with_documents(s, std::move(left)));
  }
  return candidates;
}

Candidates fewer_lists(const Scenario& s) {
  Candidates candidates;
  for (std::size_t step = 0; step < s.data.documents.size(); ++step) {
    for (const auto& range : removals(s.data.documents[step].size())) {
      Lists left = s.data.documents;
      left[step] = without(left[step], range);
      if (!left[step].empty()) candidates.push_back(with_documents(s, std::move(left)));
    }
  }
  return candidates;
}

// The first n of every list, or half of them, since a bug may need lists of two sizes; then ranges
// out of single lists.
Candidates fewer_documents(const Scenario& s) {
  Candidates candidates;
  for (const std::size_t n : {1, 2, 3}) {
    candidates.push_back(
        every_list(s, [&](MicrobatchLengths& list) { list.resize(std::min(n, list.size())); }));
  }
  candidates.push_back(
      every_list(s, [](MicrobatchLengths& list) { list.resize((list.size() + 1) / 2); }));
  for (std::size_t step = 0; step < s.data.documents.size(); ++step) {
    for (std::size_t m = 0; m < s.data.documents[step].size(); ++m) {
      for (const auto& range : removals(s.data.documents[step][m].size())) {
        candidates.push_back(s);
        MicrobatchLengths& list = candidates.back().data.documents[step][m];
        list = without(list, range);
      }
    }
  }
  return candidates;
}

// Microbatches of a bucket stay in it while all buckets become as small as they can: 1, 2, ..., and
// what fits none. The first or the last documents, since one of them alone may have a target; where
// neither has, the first gets one.
Candidates lower_buckets(const Scenario& s) {
  Scenario lower = s;
  std::vector<std::int64_t>& buckets = lower.cuda_graph.max_packed_seqs;
  std::iota(buckets.begin(), buckets.end(), 1);
  std::vector<std::int64_t> from = s.cuda_graph.max_packed_seqs;  // In any order without graphs.
  std::sort(from.begin(), from.end());
  const auto keep = [&](const MicrobatchLengths& list) {
    const auto bucket = std::lower_bound(from.begin(), from.end(), std::ssize(list)) - from.begin();
    return std::min<std::ptrdiff_t>(bucket + 1, std::ssize(list));
  };
  if (from == buckets) return {};
  const Scenario first =
      every_list(lower, [&](MicrobatchLengths& list) { list.resize(keep(list)); });
  return {first,
          every_list(
              lower,
              [&](MicrobatchLengths& list) { list.erase(list.begin(), list.end() - keep(list)); }),
          every_list(first, [](MicrobatchLengths& list) {
            if (!list.empty()) list.front() = std::max<std::int64_t>(list.front(), 2);
          })};
}

// Microbatches that need more places than there are keep doing so while both shrink; those that fit
// keep fitting. Which documents go matters where one of them alone has a target: the last ones, or
// one place of every such list.
Candidates lower_capacity(const Scenario& s) {
  const std::int64_t capacity = s.cuda_graph.max_packed_seqs.back();
  std::int64_t longest = 0;
  every_list(s,
             [&](const MicrobatchLengths& list) { longest = std::max(longest, std::ssize(list)); });
  if (longest <= capacity) return {};
  Candidates candidates;
  const auto propose = [&](std::int64_t lower, const auto& edit) {
    candidates.push_back(every_list(s, edit));
    candidates.back().cuda_graph.max_packed_seqs = {lower};
  };
  for (const std::int64_t lower : smaller(capacity, 1)) {
    const auto keep = [=](const MicrobatchLengths& list) {
      return std::min(std::ssize(list), std::ssize(list) > capacity ? lower + 1 : lower);
    };
    propose(lower, [&](MicrobatchLengths& list) { list.resize(keep(list)); });
    propose(lower,
            [&](MicrobatchLengths& list) { list.erase(list.begin(), list.end() - keep(list)); });
    propose(lower, [](MicrobatchLengths&) {});
  }
  for (std::int64_t place = 0; place < longest && capacity > 1; ++place) {
    propose(capacity - 1, [&](MicrobatchLengths& list) {
      if (std::ssize(list) >= capacity)
        list.erase(list.begin() + std::min(place, std::ssize(list) - 1));
    });
  }
  return candidates;
}

Candidates shorter_together(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t most : {1, 2, 3}) {
    candidates.push_back(every_list(s, [&](MicrobatchLengths& list) {
      for (std::int64_t& length : list) length = std::min(length, most);
    }));
  }
  candidates.push_back(every_list(s, [](MicrobatchLengths& list) {
    for (std::int64_t& length : list) length = (length + 1) / 2;
  }));
  return candidates;
}

// Rows of the fullest pack. What is cut needs no more than there are.
std::int64_t rows_needed(const Scenario& s) {
  const bool cut = s.data.long_documents == LongDocuments::truncate;
  const std::int64_t most = cut ? s.data.pack_length : std::numeric_limits<std::int64_t>::max();
  std::int64_t needed = 1;
  every_list(s, [&](const MicrobatchLengths& list) {
    std::int64_t rows = 0;
    for (const std::int64_t length : list)
      rows += slot_rows(std::min(length, most), s.data.gaps, s.data.align);
    needed = std::max(needed, rows);
  });
  return needed;
}

// An empty document is a special one: a document of a token is simpler, in a longer pack where it
// needs one.
Candidates shorter_one_by_one(const Scenario& s) {
  Candidates candidates;
  for (std::size_t step = 0; step < s.data.documents.size(); ++step) {
    for (std::size_t m = 0; m < s.data.documents[step].size(); ++m) {
      for (std::size_t d = 0; d < s.data.documents[step][m].size(); ++d) {
        const std::int64_t length = s.data.documents[step][m][d];
        for (const std::int64_t other :
             length == 0 ? std::vector<std::int64_t>{1} : smaller(length, 1)) {
          Scenario& one = candidates.emplace_back(s);
          one.data.documents[step][m][d] = other;
          one.data.pack_length = std::max(one.data.pack_length, rows_needed(one));
        }
      }
    }
  }
  return candidates;
}

Candidates smaller_pack(const Scenario& s) {
  const bool listed =
      s.data.kind == DataKind::lengths && s.data.long_documents == LongDocuments::error;
  const std::int64_t needed = listed ? rows_needed(s) : 1;
  Candidates candidates;
  for (const std::int64_t rows : smaller(s.data.pack_length, needed)) {
    candidates.push_back(s);
    candidates.back().data.pack_length = rows;
  }
  return candidates;
}

// Dropout may matter only because it makes equal microbatches different: other documents do that
// too.
Candidates other_documents(const Scenario& s) {
  const Lists& lists = s.data.documents;
  if (s.model.dropout.millionths == 0 || lists.size() != 1 || lists[0].size() != 1) return {};
  Scenario one = s;
  one.model.dropout = {};
  MicrobatchLengths& other = one.data.documents[0].emplace_back(lists[0][0]);
  if (other.empty()) return {};
  ++other.front();
  one.data.pack_length = std::max(one.data.pack_length, rows_needed(one));
  return {one};
}

// The padded sequence behind each pack counts as a document where places are counted: one of a
// token does so too.
Candidates documents_for_padding(const Scenario& s) {
  if (s.data.kind != DataKind::lengths || s.data.tail != Tail::append_dummy_seq) return {};
  Scenario one = every_list(s, [](MicrobatchLengths& list) { list.push_back(1); });
  one.data.tail = Scenario().data.tail;
  one.data.pack_length = std::max(one.data.pack_length, rows_needed(one));
  return {one};
}

// Up to three documents in one or two steps of one or two microbatches, the fewest first.
std::vector<Lists> make_small_layouts() {
  const std::vector<MicrobatchLengths> each{{},     {1},    {2},       {1, 1},
                                            {2, 1}, {1, 2}, {1, 1, 1}, {2, 1, 1}};
  std::vector<Lists> all;
  for (const MicrobatchLengths& a : each) {
    all.push_back({{a}});
    for (const MicrobatchLengths& b : each) {
      all.insert(all.end(), {{{a, b}}, {{a}, {b}}});
      for (const MicrobatchLengths& c : each)
        all.insert(all.end(), {{{a, b}, {a, c}}, {{a, b}, {c, b}}});
    }
  }
  std::erase_if(all, [](const Lists& lists) { return documents_in(lists) > 3; });
  std::stable_sort(all.begin(), all.end(), [](const Lists& a, const Lists& b) {
    return documents_in(a) < documents_in(b);
  });
  return all;
}

// A bug that needs microbatches or steps which differ loses no single document. Nor does it lose a
// mask, or a count of microbatches that changes, where these are all that makes them different: a
// document of one token, which has no target, does so too.
Candidates small_layouts(const Scenario& s) {
  static const std::vector<Lists> all = make_small_layouts();
  if (s.data.kind != DataKind::lengths) return {};
  const std::int64_t documents = documents_in(s.data.documents);
  Scenario without = s;
  without.data.mask = {};
  without.training.change_microbatches_at.clear();
  const bool changes = canonical_form(without) != canonical_form(s);
  Candidates candidates;
  const auto propose = [&](const Scenario& from, const Lists& lists) {
    Scenario& one = candidates.emplace_back(with_documents(from, lists));
    one.training.steps = std::max(one.training.steps, std::ssize(lists));
    one.training.microbatches = std::max(one.training.microbatches, std::ssize(lists.front()));
    one.data.pack_length = std::max(one.data.pack_length, rows_needed(one));
  };
  for (const Lists& lists : all) {
    const std::int64_t left = documents_in(lists);
    if (left < documents) propose(s, lists);
    if (changes && left <= documents) propose(without, lists);
  }
  return candidates;
}

}  // namespace

std::int64_t documents_in(const std::vector<StepLengths>& layouts) {
  std::int64_t count = 0;
  for (const StepLengths& step : layouts) {
    for (const MicrobatchLengths& list : step) count += std::ssize(list);
  }
  return count;
}

ShrinkRule small_layouts_rule() { return {"another layout of few documents", small_layouts}; }

std::vector<ShrinkRule> fewer_documents_rules() {
  return {{"documents as lengths", written_out}, {"documents as they are cut", cut_documents},
          {"one list of documents", one_list},   {"fewer layouts", fewer_layouts},
          {"fewer lists", fewer_lists},          {"fewer documents", fewer_documents}};
}

std::vector<ShrinkRule> shrink_document_rules() {
  std::vector<ShrinkRule> list = fewer_documents_rules();
  const std::vector<ShrinkRule> more{
      {"lower buckets", lower_buckets},
      {"lower capacity", lower_capacity},
      {"shorter documents", shorter_together},
      {"a shorter document", shorter_one_by_one},
      {"a smaller pack", smaller_pack},
      {"other documents instead of dropout", other_documents},
      {"documents instead of padded sequences", documents_for_padding}};
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

}  // namespace lockstep
