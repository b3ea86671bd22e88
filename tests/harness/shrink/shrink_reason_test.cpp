// Cases that count as the same reason, and as another effect of one cause.
#include <gtest/gtest.h>

#include <string>

#include "harness/shrink/reason.h"
#include "tests/harness/shrink/shrink_case.h"

namespace lockstep {
namespace {

TEST(ShrinkReason, IsTheSameForATensorOfTheSameKind) {
  EXPECT_EQ(tensor_kind("layers.12.norm.out"), "layers.#.norm.out");
  const CaseResult a = failure({}, "layers.0.norm.out");
  EXPECT_TRUE(same_reason(a, failure({}, "layers.7.norm.out")));
  EXPECT_FALSE(same_reason(a, failure({}, "layers.0.out")));
  CaseResult b = a;
  b.judge = JudgeKind::gradient;
  EXPECT_FALSE(same_reason(a, b));
  b = a;
  b.first_difference->op = "rms_norm_forward";
  EXPECT_FALSE(same_reason(a, b));
  b = a;
  b.first_difference->got = "missing";
  EXPECT_FALSE(same_reason(a, b));
}

TEST(ShrinkReason, ReadsSentencesWithoutTheirNumbers) {
  CaseResult a;
  a.verdict = Verdict::violated;
  a.judge = JudgeKind::vacuous;
  a.reason = "graph_replays is 3, expected 12 (whole layers)";
  CaseResult b = a;
  for (const char* same : {"graph_replays is 0, expected 2 (whole layers)",
                           "graph_replays is 1, expected 2 to 4 (slots)",
                           "graph_replays is 0, expected at least 1 (slots)"}) {
    b.reason = same;
    EXPECT_TRUE(same_reason(a, b)) << same;
  }
  for (const char* other : {"evaluations is 0, expected 2 (whole layers)",
                            "graph_replays is 9, expected 2 (whole layers)",
                            "the engine does not count graph_replays"}) {
    b.reason = other;
    EXPECT_FALSE(same_reason(a, b)) << other;
  }
  EXPECT_EQ(reason_kind("read after write: add (head, microbatch 1, step 8) on stream compute is "
                        "not ordered after copy "
                        "of 580 bytes (step 0) on stream loader. Missing edge: loader -> compute. "
                        "(and 2 other hazards)"),
            "read after write: add on stream compute is not ordered after copy of # bytes on "
            "stream loader. Missing "
            "edge: loader -> compute.");
  EXPECT_EQ(reason_kind("terminate (" + std::string(100'000, 'x') + ")").size(),
            100'012u);  // A worker's last words.
  EXPECT_EQ(reason_kind("the digest is bc655ab0a54b641d49e1f07b4e6295b3, at /a/b/c.cpp:41: in f() "
                        "[with T = float]: x"),
            "the digest is # at c.cpp:#: in f(): x");
  EXPECT_EQ(reason_kind("broken contract in f() [with T = float]: a token is an index (embed, "
                        "layer 3, rank 0, microbatch 1, step 0); before it x differs in step 0"),
            "broken contract in f(): a token is an index");
  EXPECT_EQ(reason_kind("device memory is 118 bytes after step 1 and was 113 after step 0, which "
                        "did the same; grown by 5 bytes from a backward pass, layer 2, qkv"),
            "device memory is # bytes after step # and was # after step #, which did the same");
}

TEST(ShrinkReason, KnowsOtherEffectsOfOneCause) {
  const auto hazard = [](const std::string& reason) {
    CaseResult result;
    result.verdict = Verdict::violated;
    result.judge = JudgeKind::hazard;
    result.reason = reason;
    return result;
  };
  const CaseResult a = hazard(
      "read after write: add (head, step 8) on stream compute. Missing edge: reduce -> compute. X");
  EXPECT_TRUE(same_cause(
      a,
      hazard("read after write: product on stream compute. Missing edge: reduce -> compute. Y")));
  EXPECT_FALSE(same_cause(
      a, hazard("write after read: add on stream compute. Missing edge: reduce -> compute. X")));
  EXPECT_FALSE(same_cause(
      a, hazard("read after write: add on stream compute. Missing edge: gather -> compute. X")));
  EXPECT_FALSE(same_cause(hazard("out of bounds: add"), hazard("out of bounds: add")));
  EXPECT_FALSE(same_cause(failure({}, "logits"),
                          failure({}, "logits")));  // Activations come in their order.
  const auto resumed = [](JudgeKind judge, const std::string& tensor, const char* run) {
    CaseResult result = failure({}, tensor);
    result.judge = judge;
    result.reason += run;
    return result;
  };
  const char* const kResumed = "; seen only in the run that is saved and loaded on its way";
  const CaseResult loss = resumed(JudgeKind::loss, "loss", kResumed);
  EXPECT_TRUE(same_cause(loss, resumed(JudgeKind::weights, "head.weight.m", kResumed)));
  EXPECT_FALSE(same_cause(loss, resumed(JudgeKind::weights, "head.weight.m", "")));
}

// A file is named by it, for people.
TEST(ReasonName, EndsWithAWholeWord) {
  CaseResult result;
  result.judge = JudgeKind::contract;
  result.reason = "the staging buffer of a microbatch is released before its copy has ended";
  EXPECT_EQ(reason_name(result), "contract-the-staging-buffer-of-a");
  result.reason = std::string(60, 'x');
  EXPECT_EQ(reason_name(result), "contract");
  result.reason = "short";
  EXPECT_EQ(reason_name(result), "contract-short");
}

}  // namespace
}  // namespace lockstep
