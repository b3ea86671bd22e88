// The HTML page: one file, nothing from elsewhere, nothing unescaped, the row that differs marked
// where it lies.
#include "harness/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/html_text.h"
#include "harness/report/pack_picture.h"
#include "harness/report/result_json.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two packs of 64 rows: one document, and four of which the second is empty; rows 0-9, none, 10-19,
// 20-24.
Scenario two_packs() {
  Scenario scenario;
  scenario.name = "two-packs";
  scenario.data.pack_length = 64;
  scenario.data.documents = {{{64}, {10, 0, 10, 5}}};
  scenario.training.microbatches = 2;
  return scenario;
}

FirstDifference row_in(std::int64_t document, std::int64_t position, std::int64_t row) {
  FirstDifference where;
  where.step = 0;
  where.microbatch = 1;
  where.op = "linear";
  where.tensor = "layers.0.out";
  where.index = row * 64;
  where.row = row;
  where.column = 0;
  where.document = document;
  where.position = position;
  where.got = "1 0x3f800000";
  where.want = "2 0x40000000";
  return where;
}

boost::json::object run_of(const CaseResult& result) {
  return run_to_json({result}, result.device, 0.5);
}

CaseResult violated() {
  CaseResult result;
  result.name = "<script>alert('x')</script>";
  result.numerics = "fp32";
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::activation;
  result.reason = "a < b & \"c\" \x01 \xff";
  result.token = make_token(two_packs());
  result.first_difference = row_in(4, 3, 13);
  result.counters = {{Counter::graph_replays, 16}};
  result.replay = "lockstep replay " + result.token;
  return result;
}

TEST(Html, EscapesWhateverItIsGiven) {
  EXPECT_EQ(html("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
  EXPECT_EQ(html("\xC3\xA9\n\t"), "\xC3\xA9\n\t");
  const std::string unknown = "\xEF\xBF\xBD";
  EXPECT_EQ(html(std::string("\0\x1b\x7f", 3)), unknown + unknown + unknown);
  EXPECT_EQ(html("\xC0\x80"), unknown + unknown);
  EXPECT_EQ(html("\xED\xA0\x80"), unknown + unknown + unknown);
  EXPECT_EQ(html("\xE2\x82"), unknown + unknown);  // Cut off.
}

TEST(HtmlReport, IsOnePageThatNeedsNothingElse) {
  const std::string page = html_report(run_of(violated()));
  EXPECT_THAT(page, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  for (const char* elsewhere : {"<script", "src=", "<link", "url(", "@import", "http"}) {
    EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
  }
}

TEST(HtmlReport, ShowsTheFailureEscaped) {
  const std::string page = html_report(run_of(violated()));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert('x')&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("a &lt; b &amp; &quot;c&quot; \xEF\xBF\xBD \xEF\xBF\xBD"));
  EXPECT_THAT(page, HasSubstr("step 0, rank 0, microbatch 1"));
  EXPECT_THAT(page, HasSubstr("1 0x3f800000"));
  EXPECT_THAT(page, HasSubstr("lockstep replay ls"));
  EXPECT_THAT(page, HasSubstr("<svg class=\"pack\""));
  EXPECT_THAT(page, HasSubstr("<dt>graph_replays</dt><dd>16</dd>"));
}

TEST(HtmlReport, SaysWhyItDrawsNoPack) {
  CaseResult result = violated();
  result.token = "lsX";
  const std::string page = html_report(run_of(result));
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
  EXPECT_THAT(page, HasSubstr("The packs are not drawn: token: "));
}

// A rank numbers its own microbatches: the second rank's first one is the step's second.
TEST(HtmlReport, DrawsThePacksOfTheRankThatDiffers) {
  Scenario scenario = two_packs();
  scenario.training.microbatches = scenario.training.in_flight = 1;
  scenario.parallel.data = 2;
  CaseResult result = violated();
  result.token = make_token(scenario);
  result.first_difference = row_in(3, 4, 14);
  result.first_difference->rank = 1;
  result.first_difference->microbatch = 0;
  const std::string page = html_report(run_of(result));
  EXPECT_THAT(page, HasSubstr("x1=\"298.84\""));  // As below.
  EXPECT_THAT(page, Not(HasSubstr("document 0: rows")));
}

TEST(HtmlReport, FindsTheDocumentsOfAText) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "texts");
  folder.file("texts/a.txt", "To be, or not to be, that is the question.");
  Scenario scenario = two_packs();
  scenario.model.vocab = 256;
  scenario.data.kind = DataKind::text;
  scenario.data.long_documents = LongDocuments::split;
  scenario.data.path = "texts";
  scenario.folder = folder / "";
  CaseResult result = violated();
  result.token = make_token(scenario);
  EXPECT_THAT(html_report(run_of(result)), HasSubstr("The packs are not drawn"));
  result.data_from = folder / "";
  EXPECT_THAT(html_report(run_of(result)), HasSubstr("<svg class=\"pack\""));
}

TEST(HtmlReport, ShowsWhatWasDrawn) {
  boost::json::object run = run_of(violated());
  run["distribution"] = {
      {"cases", 100},
      {"features", {{"graphs", 60}, {"dropout", 0}}},
      {"pairs", {{"graphs", "dropout", 0}}},
      {"never_met", boost::json::array{boost::json::array{"graphs", "dropout"}}}};
  const std::string page = html_report(run);
  EXPECT_THAT(page, HasSubstr("<b>100</b> cases"));
  EXPECT_THAT(page, HasSubstr("<tr class=\"never\"><td>dropout</td><td class=\"n\">never</td>"));
  EXPECT_THAT(page, HasSubstr("<li>graphs + dropout</li>"));
}

TEST(HtmlReport, HeldShowsNoFailure) {
  CaseResult result;
  result.name = "fine";
  const std::string page = html_report(run_of(result));
  EXPECT_THAT(page, HasSubstr("<title>lockstep: held</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Failures</h2>")));
}

// Rows are 860 / 64 wide and begin at 104.
TEST(PackPicture, MarksTheRowOfTheDocument) {
  const Scenario scenario = two_packs();
  const StepData step = open_data(scenario)->training(0);
  const std::string drawn = pack_picture(scenario.data, step, row_in(3, 4, 14));
  EXPECT_THAT(
      drawn,
      HasSubstr("<line class=\"marker\" x1=\"298.84\" x2=\"298.84\""));  // 104 + 860 * 14.5 / 64
  EXPECT_THAT(drawn, HasSubstr("document 3: rows 10 to 19"));
  EXPECT_THAT(drawn, HasSubstr("document 2: empty, a slot without rows"));
  EXPECT_THAT(drawn, HasSubstr("differs"));
}

TEST(PackPicture, MarksNoRowWhereNoneDiffers) {
  const Scenario scenario = two_packs();
  FirstDifference loss;
  loss.step = 0;
  loss.microbatch = 1;
  loss.tensor = "loss";
  const std::string drawn = pack_picture(scenario.data, open_data(scenario)->training(0), loss);
  EXPECT_THAT(drawn, Not(HasSubstr("marker")));
  EXPECT_THAT(drawn, HasSubstr("microbatch 1"));
}

TEST(HtmlOption, WritesThePageWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string file = folder.file("a.yaml", "schema: 1\nname: a\nnumerics: [fp32]\n");
  EXPECT_EQ(
      run_lockstep("verify --quiet --device sim " + file + " --html " + (folder / "a.html")).status,
      0);
  EXPECT_THAT(slurp(folder / "a.html"), testing::EndsWith("</html>\n"));
  const Ran ran =
      run_lockstep("replay --quiet --device sim " + file + " --html " + (folder / "none/a.html"));
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, HasSubstr("none/a.html"));
}

}  // namespace
}  // namespace lockstep
