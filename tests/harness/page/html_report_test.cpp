// The HTML page: one file, nothing from elsewhere, nothing unescaped, the row that differs marked
// where it lies.
#include "harness/page/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/page/hazard_picture.h"
#include "harness/page/html_text.h"
#include "harness/page/pack_picture.h"
#include "harness/report/result_json.h"
#include "harness/report/run_difference.h"
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
  for (const char* elsewhere : {"src=", "<link", "url(", "@import", "http:", "https:"}) {
    EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
  }
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy\" content=\"default-src 'none'; "));
  const std::size_t script = page.find("<script");
  EXPECT_EQ(page.find("<script", script + 1), std::string::npos) << "one script, of the policy";
}

HazardRecord two_streams() {
  const HazardSide copy{.stream = "loader",
                        .work = "copy of 64 bytes",
                        .place = "step 0",
                        .replay = "",
                        .operand = "",
                        .access = "writes",
                        .rows = 1,
                        .width = 64,
                        .pitch = 64};
  const HazardSide op{.stream = "compute",
                      .work = "rms_norm_forward",
                      .place = "norm, layer 0, step 0",
                      .replay = "replay 2 of graph 3",
                      .operand = "<x>",
                      .access = "reads",
                      .rank = 1,
                      .first = 32,
                      .rows = 2,
                      .width = 8,
                      .pitch = 16};
  return {.kind = "read after write",
          .later = op,
          .earlier = copy,
          .allocation = 7,
          .allocation_bytes = 128,
          .event = 5,
          .text = "the second race"};
}

TEST(HazardPicture, DrawsTheAccessesTheMissingEdgeAndTheBytes) {
  const std::string drawn = hazard_picture(two_streams());
  for (const char* part :
       {"stream loader", "stream compute, rank 1", "copy of 64 bytes", "reads &lt;x&gt;",
        "norm, layer 0, step 0; replay 2 o...", "missing edge: no wait for event 5",
        "event 5 is recorded here", "bytes 0 to 63", "bytes 32 to 39", "bytes 48 to 55",
        "<rect class=\"bytes both\"", "bytes 32 to 55", "of the 128-byte device allocation 7"}) {
    EXPECT_THAT(drawn, HasSubstr(part));
  }
  HazardRecord alone = two_streams();
  alone.earlier.reset();
  alone.event = -1;
  const std::string one = hazard_picture(alone);
  EXPECT_THAT(one, Not(HasSubstr("missing edge")));
  EXPECT_THAT(one, HasSubstr("bytes 48 to 55"));
  alone.kind = "destroyed while in use";
  EXPECT_EQ(hazard_picture(alone), "");
}

TEST(HazardRecord, TravelsAsJson) {
  CaseResult result = violated();
  result.hazards = {two_streams(), two_streams()};
  result.hazards[1].earlier.reset();
  EXPECT_EQ(result_from_json(to_json(result)).hazards, result.hazards);
}

TEST(HtmlReport, DrawsEachHazardAndTellsTheReasonOnce) {
  CaseResult result = violated();
  result.first_difference.reset();
  result.judge = JudgeKind::hazard;
  result.reason = "the first race";
  result.hazards = {two_streams(), two_streams()};
  result.hazards[0].text = result.reason;
  const std::string page = html_report(run_of(result));
  const std::size_t told = page.find("the first race");
  EXPECT_EQ(page.find("the first race", told + 1), std::string::npos);
  EXPECT_THAT(page, HasSubstr("<summary>1 other hazard</summary>"));
  EXPECT_THAT(page, HasSubstr("the second race"));
  EXPECT_THAT(page, HasSubstr("what may run before it is over"));  // The legend.
}

TEST(HtmlReport, OffersTheNextCommands) {
  CaseResult result = violated();
  result.file = "my dir/a.yaml";
  result.replay = "lockstep replay " + result.token + " --device sim --plant x";
  const std::string page = html_report(run_of(result));
  EXPECT_THAT(page, HasSubstr(">lockstep replay 'my dir/a.yaml' --device sim --plant x<"));
  EXPECT_THAT(page, HasSubstr(">lockstep shrink " + result.token +
                              " --device sim --plant x -o small.yaml<"));
  EXPECT_THAT(page, HasSubstr("--plant x --trace trace.json<"));
  EXPECT_THAT(page, HasSubstr("name: two-packs"));  // The scenario's text.
}

TEST(HtmlReport, SaysWhereAndHowItWasMade) {
  boost::json::object run = run_of(violated());
  run["date"] = "2026-01-02T03:04:05Z";
  run["host"] = "<host>";
  run["command"] = "lockstep verify 'a b.yaml'";
  const std::string page = html_report(run);
  for (const char* fact : {"<dd>2026-01-02T03:04:05Z</dd>", "<dd>&lt;host&gt;</dd>",
                           "<dd>lockstep verify 'a b.yaml'</dd>"}) {
    EXPECT_THAT(page, HasSubstr(fact));
  }
}

TEST(HtmlReport, CompletesTheCardOfACampaign) {
  boost::json::object run = run_of(violated());
  run["campaign"] = {{"seed", "7"}, {"profile", "small"}, {"with", "nccl"}};
  run["classes"] = {{{"class", "c"},
                     {"kind", "racy"},
                     {"cases", 3},
                     {"first_case", 132},
                     {"failed", 2},
                     {"runs", 5},
                     {"file", "corpus/x.yaml"}}};
  const std::string page = html_report(run);
  EXPECT_THAT(page, HasSubstr("racy: 2 of 5 further runs failed; 3 cases of this class, first in "
                              "case 132. Kept as corpus/x.yaml."));
  EXPECT_THAT(page, HasSubstr("lockstep fuzz --seed 7 --case 132 --profile small --with nccl"));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Results</h2>")));
}

TEST(RunDifference, FindsTheSameCasesAgain) {
  CaseResult a = violated(), b = violated(), c = violated();
  a.name = "a", b.name = "b", c.name = "c";
  b.verdict = Verdict::holds;
  b.judge = JudgeKind::none;
  b.counters[Counter::graph_replays] = 16;
  a.reason = "bytes of allocation 12";
  const boost::json::object before = run_to_json({a, b, c}, {}, 0);
  std::swap(a.verdict, b.verdict);
  c.reason = "another";
  CaseResult d = violated();
  d.name = "d";
  const boost::json::object now = run_to_json({a, b, c, d}, {}, 0);
  const boost::json::object found = run_difference(before, now, "old.json");
  const auto names = [&](const char* list) {
    std::string text;
    for (const boost::json::value& one : found.at(list).as_array())
      text += std::string(one.at("name").as_string());
    return text;
  };
  EXPECT_EQ(names("newly_failing"), "b");
  EXPECT_EQ(names("mended"), "a");
  EXPECT_EQ(names("other_failure"), "c");
  EXPECT_EQ(names("added"), "d");
  EXPECT_EQ(names("gone"), "");
  EXPECT_THAT(difference_text(found), HasSubstr("1 newly fail, 1 mended, 1 fail otherwise"));
  // The numbers of allocations are of the run.
  a.verdict = Verdict::violated;
  const boost::json::object first = run_to_json({a}, {}, 0);
  a.reason = "bytes of allocation 99";
  const boost::json::object same = run_difference(first, run_to_json({a}, {}, 0), "old.json");
  EXPECT_TRUE(same.at("other_failure").as_array().empty());
  boost::json::object run = now;
  run["against"] = found;
  EXPECT_THAT(html_report(run), HasSubstr("<h2>Against another run</h2>"));
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
  EXPECT_THAT(drawn,
              HasSubstr("<line class=\"marker\" x1=\"298.84\" y1="));  // 104 + 860 * 14.5 / 64
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
