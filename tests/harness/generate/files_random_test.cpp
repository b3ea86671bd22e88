// Random documents from files, text and JSONL, under random models, schedules and machinery: engine
// against oracle. Campaigns draw none, since no token can carry the bytes (docs/decisions.md).
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "harness/generate/features.h"
#include "harness/generate/generator.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
#include "harness/run/run_case.h"
#include "scenarios/documents/documents.h"
#include "scenarios/io/reader.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int kScenarios = 40;

// Any byte that a text may hold; a NUL is refused (Y08).
std::string draw_bytes(Choices& c, std::int64_t most) {
  std::string bytes;
  for (std::int64_t left = c.between(0, most); left > 0; --left)
    bytes += static_cast<char>(c.between(1, 255));
  return bytes;
}

// Letters, and one of two bytes, so that it is UTF-8.
std::string draw_letters(Choices& c, std::int64_t most) {
  std::string text;
  for (std::int64_t left = c.between(0, most); left > 0; --left) {
    text += c.one_in(8) ? "\u00e9" : std::string(1, static_cast<char>('a' + c.between(0, 25)));
  }
  return text;
}

boost::json::value draw_record(Choices& c, std::int64_t most) {
  if (c.one_in(2)) return {{"text", draw_letters(c, most)}};
  boost::json::array messages;
  do {
    const char* role = c.pick<const char*>({"assistant", "user", "system"});
    messages.push_back({{"role", role}, {"content", draw_letters(c, most / 2)}});
  } while (!c.one_in(2));
  return {{"messages", messages}};
}

// Files in folders, or one of records.
class Files {
 public:
  Files(const TemporaryFolder& folder, DataKind kind) : folder_(folder), kind_(kind) {}
  void add(const std::string& bytes, const boost::json::value& record) {
    const std::string name =
        "texts/" + std::to_string(count_ % 3) + "/" + std::to_string(count_) + ".txt";
    ++count_;
    if (kind_ == DataKind::text) folder_.file(name, bytes);
    records_ += boost::json::serialize(record) + "\n";
    if (kind_ == DataKind::jsonl) folder_.file("records.jsonl", records_);
  }

 private:
  const TemporaryFolder& folder_;
  DataKind kind_;
  int count_ = 0;
  std::string records_;
};

// Documents of none, a few and more bytes than a pack has rows. Several ranks must not see the same
// ones, or nobody could tell what they exchange apart: each has a pack of its own, and half of the
// packs may go to evaluation.
void write_files(Choices& c, const TemporaryFolder& folder, const Scenario& s) {
  const std::int64_t most = 2 * s.data.pack_length;
  Files files(folder, s.data.kind);
  for (std::int64_t left = c.between(4, 12); left > 0; --left) {
    const std::string bytes = draw_bytes(c, c.one_in(4) ? 3 : most);
    files.add(bytes, draw_record(c, most));
  }
  for (std::int64_t left = s.parallel.data == 1 ? 0 : 2 * s.parallel.data; left > 0; --left) {
    std::string text;
    while (std::ssize(text) < s.data.pack_length) text += static_cast<char>('a' + c.between(0, 25));
    files.add(text, {{"text", text}});
  }
}

// A random scenario that reads these files instead of its lists; a capacity that something fits.
Scenario reads_files(Choices& c, const TemporaryFolder& folder) {
  Scenario s = generate_scenario(c);
  s.folder = folder / "";
  s.model.vocab = std::max<std::int64_t>(s.model.vocab, 256);  // L04
  Scenario::Data& d = s.data;
  d.documents = Scenario().data.documents;
  d.distribution = {};
  d.kind = c.one_in(2) ? DataKind::jsonl : DataKind::text;
  d.path = d.kind == DataKind::text ? "texts" : "records.jsonl";
  d.long_documents = c.pick<LongDocuments>({LongDocuments::split, LongDocuments::truncate});
  d.mask.document_end = d.long_documents != LongDocuments::split || c.one_in(2);
  if (d.kind == DataKind::jsonl && c.one_in(2)) d.mask.roles = {"assistant", "user"};
  s.cuda_graph.max_packed_seqs = {c.between(1, 12), 4096};
  s.cuda_graph.max_seqlen.reset();
  write_files(c, folder, s);
  return s;
}

TEST(RandomFiles, EveryBitIsTheOracles) {
  const std::uint64_t seed = test_seed();
  int run = 0, of[2][2] = {};
  for (std::uint64_t i = 0; run < kScenarios; ++i) {
    ASSERT_LT(i, 40u * kScenarios) << "almost nothing that is drawn is legal";
    Choices c(seed + i);
    const TemporaryFolder folder;
    const Scenario s = reads_files(c, folder);
    if (!check_legality(s).empty()) continue;
    ++run;
    ++of[s.data.kind == DataKind::jsonl][s.data.long_documents == LongDocuments::split];
    const CaseResult result = run_case(s, {});
    ASSERT_EQ(result.verdict, Verdict::holds) << "LOCKSTEP_SEED=" << seed + i << "\n"
                                              << failure_block(result) << to_yaml(s);
  }
  for (const auto& kind : of) {
    for (const int cases : kind) EXPECT_GT(cases, 0);
  }
}

}  // namespace
}  // namespace lockstep
