// Rules Y01..Y07: what reading refuses, where it says so, and what it proposes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>

#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text = "data: ";
  for (int i = 0; i < depth; ++i) text += open;
  for (int i = 0; i < depth; ++i) text += close;
  return with_head(text + "\n");
}

TEST(Y01, RefusesEmptyFiles) {
  for (const char* text :
       {"", "\n", "# only a comment\n", "---\n", "---\n...\n", "~\n", "null\n", "   "}) {
    EXPECT_EQ(reading_rules(text), "Y01") << text;
  }
}

TEST(Y01, RefusesMoreThanOneMebibyteBeforeParsing) {
  const std::string head = with_head("");
  EXPECT_EQ(reading_rules(head + "#" + std::string((1 << 20) - head.size() - 1, 'x')), "");
  EXPECT_EQ(reading_rules(head + "#" + std::string((1 << 20) - head.size(), 'x')), "Y01");
  EXPECT_EQ(reading_rules(std::string(100 << 20, '[')), "Y01");
}

// A file of almost 1 MiB, whose canonical form is larger by the keys that it left out.
TEST(Y01, RefusesACanonicalFormOfMoreThanOneMebibyte) {
  const auto file_of = [](std::size_t bytes) {
    std::string text = with_head(
        "model: {pattern: \"-\"}\ntraining: {steps: 1, microbatches: 1}\ndata: {pack_length: ");
    for (text += "1048576, documents: [[[2"; text.size() < bytes;) text += ",1";
    return text + "]]]}\n";
  };
  const auto begin = std::chrono::steady_clock::now();
  const ReadStage small = read_stage(file_of((1 << 20) - 8000), "a.yaml");
  EXPECT_THAT(small.errors, testing::IsEmpty());
  EXPECT_LE(canonical_form(small.scenario).size(), std::size_t{1} << 20);
  EXPECT_FALSE(make_token(small.scenario).empty());
  const ReadStage large = read_stage(file_of((1 << 20) - 100), "a.yaml");
  ASSERT_EQ(large.errors.size(), 1u);
  EXPECT_EQ(large.errors.front().rule, "Y01");
  EXPECT_THAT(large.errors.front().text(), HasSubstr("canonical form of 10"));
  // One long line: the place of each item must not cost a walk along it.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

// The words are of the file, not of the parser.
TEST(Y01, NamesTheUsualSlips) {
  const std::pair<const char*, const char*> slips[] = {
      {"model:\n\tpattern: \"M\"\n", "a tab indents line 4, and YAML wants spaces"},
      {"model:\n  hidden: 32\n\tpattern: \"M\"\n", "a tab indents line 5"},
      {"model\ndata:\n  align: 1\n", "line 3 `model` has no colon"},
      {"model\n  hidden: 32\n", "line 3 `model` has no colon"},
      {"model:\n  hidden 32 # x\n\n  pattern: \"M\"\n", "line 4 `hidden 32` has no colon"},
      {"description:a\ndata:\n  align: 1\n", "line 3 `description:a` has no blank after its colon"},
      {"description: a: b\n", "line 3 `description: a: b` has two colons"},
      {"model:\n  hidden: 32\n    pattern: \"M\"\n",
       "line 5 is indented more deeply than line 4, which has its value already"},
      {"model:\n  hidden: 32\n pattern: \"M\"\n", "line 5 is indented by 1, and no section above"},
      {"model: {hidden: 32\ntraining: {steps: 3}\n", "the { of line 3 is not closed"},
      {"data: {documents: [[[1, 2]]}\n", "the [ of line 3 is closed by the } of line 3"},
      {"data: {align: 1}}\n", "line 3 closes with } what nothing opened"},
  };
  for (const auto& [text, slip] : slips) {
    const ReadResult read =
        read_scenario_text(std::string("schema: 1\nname: a\n") + text, "x.yaml");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.rule(), "Y01") << text;
    EXPECT_THAT(text_of(read.errors), HasSubstr(std::string("is no YAML: ") + slip)) << text;
  }
}

TEST(Y01, RefusesDeepNesting) {
  // The file is level 1, data: {...} is level 2: 31 more mappings or lists are legal, though no key
  // goes there.
  EXPECT_EQ(reading_rules(nested(31, "[", "]")), "Y05");
  EXPECT_EQ(reading_rules(nested(32, "[", "]")), "Y01");
  EXPECT_EQ(reading_rules(nested(100000, "[", "]")), "Y01");
  EXPECT_EQ(reading_rules(nested(100000, "{a: ", "}")), "Y01");
  EXPECT_EQ(reading_rules(nested(100000, "[", "")), "Y01");
  EXPECT_EQ(reading_rules(nested(100000, "- ", "")), "Y01");
  std::string indented;
  for (int i = 0; i < 1000; ++i) indented += std::string(i, ' ') + "a:\n";
  EXPECT_EQ(reading_rules(indented), "Y01");
}

TEST(Y01, CountsNoBracketsInTexts) {
  EXPECT_EQ(reading_rules(with_head("description: \"" + std::string(450, '[') + "\"\n")), "");
  EXPECT_EQ(reading_rules(with_head("description: '" + std::string(450, '{') + "'\n")), "");
  EXPECT_EQ(reading_rules(with_head("# " + std::string(5000, '[') + "\n")), "");
}

TEST(Y01, RefusesWhatIsNotUtf8) {
  for (const char* bytes :
       {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    EXPECT_EQ(reading_rules(with_head("description: \"" + std::string(bytes) + "\"\n")), "Y01");
  }
  EXPECT_EQ(reading_rules(with_head("description: \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\n")),
            "");
  EXPECT_EQ(reading_rules("\xff\xfes\0c\0h\0"), "Y01");
}

TEST(Y01, RefusesNulAndControlBytes) {
  for (const char byte : {'\0', '\1', '\x1b', '\x7f', '\v', '\f'}) {
    EXPECT_EQ(reading_rules(with_head("description: a" + std::string(1, byte) + "b\n")), "Y01")
        << int{byte};
  }
  EXPECT_EQ(reading_rules(with_head("description:\ta\n")), "");
  EXPECT_EQ(reading_rules("schema: 1\r\nname: a\r\n"), "");
  // A lone carriage return would vanish: 1\r0 is no 10.
  EXPECT_EQ(reading_rules(with_head("training: {steps: 1\r0}\n")), "Y01");
}

TEST(Y01, RefusesSeveralDocuments) {
  EXPECT_EQ(reading_rules(with_head("---\n") + with_head("")), "Y01");
  EXPECT_EQ(reading_rules(with_head("---\n")), "Y01");
  EXPECT_EQ(reading_rules(with_head("...\n---\nb: 1\n")), "Y01");
  EXPECT_EQ(reading_rules("---\n" + with_head("...\n")), "");
}

TEST(Y01, RefusesWhatIsNoYaml) {
  for (const char* text : {"a: b: c\n", "a: [1, 2\n", "a: \"b\n", "a: @b\n", "[1]]\n", "a: 'b\n",
                           "a: 1\n  b: 2\n", "a: \"b\" c\n"}) {
    EXPECT_THAT(reading_error(text), HasSubstr("[Y01]")) << text;
  }
}

TEST(Y01, RefusesFilesThatCannotBeRead) {
  const TemporaryFolder folder;
  folder.file("noise", std::string("\x7f"
                                   "ELF\2\1\1\0\0\0",
                                   10));
  mkfifo((folder / "fifo").c_str(), 0600);
  EXPECT_EQ(read_scenario_file(folder / "missing.yaml").rule(), "Y01");
  EXPECT_EQ(read_scenario_file(folder.path()).rule(), "Y01");
  EXPECT_EQ(read_scenario_file(folder / "noise").rule(), "Y01");
  EXPECT_EQ(read_scenario_file(folder / "fifo").rule(), "Y01");
  EXPECT_EQ(read_scenario_file("").rule(), "Y01");
  EXPECT_THAT(read_scenario_file(folder / "missing.yaml").errors.front().text(),
              HasSubstr("missing.yaml:1:1: (file): does not exist [Y01]"));
}

TEST(Y01, RefusesAHugeFileQuickly) {
  const TemporaryFolder folder;
  folder.file("huge.yaml", with_head(""));
  std::filesystem::resize_file(folder / "huge.yaml", 100 << 20);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_scenario_file(folder / "huge.yaml").rule(), "Y01");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

// A megabyte made to keep a parser busy is still refused in seconds, whatever by.
TEST(Y01, SurvivesHostileMegabytes) {
  for (const char* part :
       {"[",       "{",   "- ",  "? ", "[\n", "a: ",   "[a, ",   "{a: ",   "[?",
        "!",       "&a ", "*a ", "\"", "'",   "- a\n", "a: b\n", "--- \n", "%Y\n",
        "[\"a\":", "#",   "\n",  ",",  ":",   "|\n ",  "a ",     "x: [\n", "<<: 1\n"}) {
    std::string text;
    while (text.size() + 8 < (1 << 20)) text += part;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(reading_rules(text), "") << part;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << part;
  }
}

TEST(Y02, RefusesAliasesAnchorsTagsAndMergeKeys) {
  EXPECT_EQ(reading_rules(with_head("model: {pattern: *-}\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("model:\n  pattern: *E*E\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("training: {steps: &s 3, eval_every: *s}\n")), "Y02 Y02");
  EXPECT_EQ(reading_rules(with_head("training: &t {steps: 3}\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("training: {steps: !!int 3}\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("training: !x {steps: 3}\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("description: ! a\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("description: !<?> \"a\"\n")), "Y02");
  EXPECT_EQ(reading_rules(with_head("training: {<<: {steps: 3}}\n")), "Y02");
  EXPECT_EQ(reading_rules("schema: 1\n&n name: a\n"), "Y02");
  EXPECT_EQ(reading_rules("!!map\nschema: 1\nname: a\n"), "Y02");
}

TEST(Y02, RefusesDirectives) {
  EXPECT_EQ(reading_rules("%YAML 1.2\n---\n" + with_head("")), "Y02");
  EXPECT_EQ(reading_rules("%TAG ! tag:x\n---\n" + with_head("")), "Y02");
  EXPECT_EQ(reading_rules("# c\n%FOO\n---\n" + with_head("")), "Y02");
  EXPECT_EQ(reading_rules(with_head("description: 100%\n")), "");
}

TEST(Y02, ExpandsNothing) {
  std::string laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    const std::string before(1, static_cast<char>(c - 1));
    laughs += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) laughs += (i ? ", *" : "*") + before;
    laughs += "]\n";
  }
  EXPECT_THAT(reading_rules(laughs), StartsWith("Y02 Y02"));
}

TEST(Y02, LeavesQuotedTextAlone) {
  EXPECT_EQ(reading_rules(with_head("description: \"*a &b !c <<\"\nmodel: {pattern: '*-'}\n")), "");
  EXPECT_EQ(reading_rules(with_head("'<<': 1\n")), "Y03");
}

TEST(Y02, PointsAtTheAlias) {
  EXPECT_THAT(reading_error(with_head("model:\n  pattern: *-\n")),
              StartsWith("file.yaml:4:12: (file): "));
}

TEST(Y03, NamesTheNearestKeyOfTheSection) {
  EXPECT_EQ(reading_error(with_head("model: {hiden: 3}\n")),
            "file.yaml:3:9: model.hiden: is no key of schema 1 [Y03]: model.hidden takes int "
            "1..16384, in features: width of the residual stream; nearest legal: hidden");
  EXPECT_THAT(reading_error(with_head("trainning: {}\n")), HasSubstr("nearest legal: training"));
  EXPECT_THAT(reading_error(with_head("cuda_graph: {max_packed_seq: 3}\n")),
              HasSubstr("nearest legal: max_packed_seqs"));
  EXPECT_THAT(reading_error(with_head("model: {attention: {kvheads: 3}}\n")),
              HasSubstr("nearest legal: kv_heads"));
  EXPECT_THAT(reading_error(with_head("expect: {verdict: refused, error: l07}\n")),
              HasSubstr("nearest legal: L07"));
}

TEST(Y03, RefusesKeysInTheWrongPlace) {
  EXPECT_EQ(reading_rules(with_head("hidden: 32\n")), "Y03");
  EXPECT_EQ(reading_rules(with_head("model.hidden: 32\n")), "Y03");
  EXPECT_EQ(reading_rules(with_head("data: {model: {hidden: 32}}\n")), "Y03");
  EXPECT_EQ(reading_rules(with_head("[a]: 1\n")), "Y03");
  EXPECT_EQ(reading_rules(with_head("~: 1\n")), "Y03");
  EXPECT_EQ(reading_rules(with_head("Training: {}\n")), "Y03");
}

TEST(Y03, KnowsTheRecordsInsideOfValues) {
  EXPECT_EQ(reading_rules(with_head("checker: {delays: [{stream: d2h, spin: 1, ranks: 0}]}\n")),
            "Y03");
  EXPECT_EQ(
      reading_rules(with_head("training: {change_microbatches_at: [{step: 1, microbatch: 1}]}\n")),
      "Y03");
  EXPECT_THAT(reading_error(with_head("expect: {counters: {graph_replay: 1}}\n")),
              HasSubstr("expect.counters.graph_replay: is no key of schema 1 [Y03]"));
  EXPECT_THAT(reading_error(with_head("expect: {counters: {graph_replays: {same_as: op}}}\n")),
              AllOf(HasSubstr("[Y03]"), HasSubstr("nearest legal: ops")));
}

TEST(Records, AWrongValueHidesNoOtherKey) {
  EXPECT_EQ(reading_rules(with_head("checker: {delays: [{stream: d2d, rank: some, spin: 0}]}\n")),
            "Y05 Y06 Y06");
  EXPECT_EQ(reading_rules(with_head("checker: {delays: [{stream: d2d, spin: 1}]}\n")), "Y06");
  EXPECT_EQ(reading_rules(
                with_head("training: {change_microbatches_at: [{step: x, microbatches: 0}]}\n")),
            "Y05 Y06");
}

TEST(Y04, RefusesAKeyThatIsGivenTwice) {
  EXPECT_EQ(reading_error(with_head("training:\n  steps: 3\n  steps: 3\n")),
            "file.yaml:5:3: training.steps: is given twice [Y04]: only one of them could count; "
            "the first is in line 4; "
            "nearest legal: one of them");
  EXPECT_EQ(reading_rules(with_head("name: a\n")), "Y04");
  EXPECT_EQ(reading_rules(with_head("training: {}\ntraining: {}\n")), "Y04");
  EXPECT_EQ(reading_rules(with_head("\"name\": a\n")), "Y04");
  EXPECT_EQ(reading_rules(with_head("expect: {counters: {ops: 1, ops: 2}}\n")), "Y04");
  EXPECT_EQ(reading_rules("? {a: 1, a: 2}\n: 3\n"), "Y03 Y04 Y07 Y07");
  EXPECT_EQ(reading_rules(with_head("expect: {counters: {ops: {min: 1, min: 1}}}\n")), "Y04");
  EXPECT_EQ(reading_rules(with_head(
                "model: {hidden: 32}\ntraining: {seed: 1}\nchecker: {schedule: {seed: 1}}\n")),
            "");
}

TEST(Y05, RefusesWhatIsNoInt) {
  for (const char* value : {"1.0", "010", "-03",   "00",    "0x10", "1_000",   "\"3\"", "'3'",
                            "+3",  "3e0", "three", "true",  "[3]",  "{a: 3}",  "~",     "null",
                            "",    "0o7", "- 3",   "1,000", "3 4",  "|\n    3"}) {
    EXPECT_EQ(
        reading_rules(with_head("training:\n  steps: " + std::string(value) + "\n")).substr(0, 3),
        std::string(value) == "- 3" ? "Y01" : "Y05")
        << value;
  }
  EXPECT_EQ(reading_rules(with_head("training: {steps: 12}\n")), "");
}

TEST(Y05, NamesTheAlternativeWithWhatAKeyTakes) {
  EXPECT_THAT(reading_error(with_head("offload: {max_inflight: 1025}\n")),
              HasSubstr("`1025` is out of range [Y06]: it takes int 0..1024, or unlimited"));
}
TEST(Y05, ProposesANameThatIsLegal) {
  EXPECT_THAT(reading_error("schema: 1\nname: null\n"), HasSubstr("nearest legal: a-name"));
}
TEST(Y05, ProposesTheIntThatWasMeant) {
  EXPECT_THAT(reading_error(with_head("training: {steps: 7.0}\n")), HasSubstr("nearest legal: 7"));
  EXPECT_THAT(reading_error(with_head("training: {steps: 0x10}\n")),
              HasSubstr("nearest legal: 16"));
  EXPECT_THAT(reading_error(with_head("training: {steps: 010}\n")), HasSubstr("nearest legal: 10"));
  EXPECT_THAT(reading_error(with_head("training: {steps: 1_000}\n")),
              HasSubstr("nearest legal: 1000"));
  EXPECT_THAT(reading_error(with_head("training: {steps: \"5\"}\n")),
              HasSubstr("nearest legal: 5"));
  EXPECT_THAT(reading_error(with_head("training: {steps: many}\n")), HasSubstr("nearest legal: 3"));
}

TEST(Y05, RefusesWhatIsNoNumber) {
  for (const char* value : {".inf", "-.inf", ".nan", "inf", "nan", "01", "010.5", "1.", ".5", "1e",
                            "0x1p3", "\"1\"", "1_0", "", "[1]"}) {
    EXPECT_EQ(reading_rules(with_head("training: {optimizer: {lr: " + std::string(value) + "}}\n")),
              "Y05")
        << value;
  }
  for (const char* value : {"1", "0", "1.5", "1e-3", "1.0E+2", "1.0e-5"}) {
    EXPECT_EQ(reading_rules(with_head("training: {optimizer: {lr: " + std::string(value) + "}}\n")),
              "")
        << value;
  }
}

TEST(Y05, RefusesWhatIsNoRatio) {
  for (const char* value :
       {"-0.1", "00.1", "1e-3", "0.1234567", ".5", "1.", "\"0.5\"", "half", ""}) {
    EXPECT_EQ(reading_rules(with_head("model: {dropout: " + std::string(value) + "}\n")), "Y05")
        << value;
  }
  for (const char* value : {"0", "0.9", "0.123456", "0.100000"}) {
    EXPECT_EQ(reading_rules(with_head("model: {dropout: " + std::string(value) + "}\n")), "")
        << value;
  }
  EXPECT_EQ(reading_rules(with_head("model: {moe: {capacity_factor: unlimited}}\n")), "Y05");
  EXPECT_EQ(reading_rules(with_head("model: {moe: {capacity_factor: none}}\n")), "");
}

TEST(Y05, RefusesWhatIsNoBool) {
  for (const char* value : {"yes", "no", "on", "off", "True", "FALSE", "1", "\"true\"", "y", ""}) {
    EXPECT_EQ(reading_rules(with_head("model: {tied_embedding: " + std::string(value) + "}\n")),
              "Y05")
        << value;
  }
  EXPECT_THAT(reading_error(with_head("model: {tied_embedding: yes}\n")),
              HasSubstr("nearest legal: true"));
  EXPECT_THAT(reading_error(with_head("model: {tied_embedding: off}\n")),
              HasSubstr("nearest legal: false"));
}

TEST(Y05, RefusesTextOfSeveralLines) {
  for (const char* value :
       {"|\n  a\n", ">\n  a\n", "a\n  b\n", "\"a\n  b\"\n", "'a\n\n  b'\n", "\"a\\nb\"\n",
        "\"\\0\"\n", "\n", "~\n", "null\n", "[a]\n", "{a: b}\n"}) {
    EXPECT_EQ(reading_rules(with_head("description: " + std::string(value))), "Y05") << value;
  }
  EXPECT_EQ(reading_rules(with_head("description: \"\"\n")), "");
  EXPECT_EQ(reading_rules(with_head("description: a b # c\n")), "");
  EXPECT_EQ(reading_rules(with_head("description: 3\n")), "");
  EXPECT_EQ(reading_rules(with_head("description: \"a\tb\"\n")), "");
}

TEST(Y05, RefusesWrongShapes) {
  for (const char* rest :
       {"model: 3", "model:", "model: []", "numerics: fp32", "data: {documents: 3}",
        "data: {documents: [3]}", "data: {documents: [[3]]}", "data: {documents: [[[[3]]]]}",
        "training: {recapture_at: 1}", "training: {change_microbatches_at: [{step: 1}]}",
        "checker: {delays: [d2h]}", "checker: {delays: [{stream: d2h}]}", "expect: {counters: []}",
        "expect: {counters: {ops: {}}}", "expect: {counters: {ops: {min: 1, same_as: ops}}}",
        "training: {optimizer: {betas: 0.9}}", "cuda_graph: {impl: [partial]}",
        "offload: {max_inflight: some}", "data: {documents: [[[3,,4]]]}"}) {
    EXPECT_EQ(reading_rules(with_head(rest)), "Y05") << rest;
  }
  EXPECT_THAT(reading_error("[1, 2]\n"), HasSubstr("file.yaml:1:1: (file): is a list [Y05]"));
  EXPECT_THAT(reading_error("text\n"), HasSubstr("[Y05]"));
}

TEST(Y05, PointsAtTheItem) {
  EXPECT_THAT(reading_error(with_head("data:\n  documents: [[[1, 2], [3, x]]]\n")),
              StartsWith("file.yaml:4:28: data.documents[0][1][1]: is `x` [Y05]"));
  EXPECT_THAT(
      reading_error(with_head("description: \"\xc3\xa9\xc3\xa9\"\nmodel: {\"hidden\": x}\n")),
      StartsWith("file.yaml:4:19: model.hidden: "));
}

TEST(Y06, RefusesValuesOutOfRange) {
  for (const char* rest : {"model: {hidden: 0}",
                           "model: {hidden: 16385}",
                           "model: {hidden: -1}",
                           "model: {hidden: 99999999999999999999}",
                           "model: {attention: {head_dim: 15}}",
                           "model: {attention: {rope_base: 1}}",
                           "model: {norm_eps: 0}",
                           "model: {norm_eps: 1e999}",
                           "model: {dropout: 0.900001}",
                           "model: {moe: {capacity_factor: 0}}",
                           "training: {optimizer: {lr: -1}}",
                           "training: {optimizer: {betas: [0.9, 1]}}",
                           "training: {optimizer: {betas: [0.9]}}",
                           "offload: {max_inflight: 1025}",
                           "cuda_graph: {max_packed_seqs: 0}",
                           "cuda_graph: {max_packed_seqs: []}",
                           "cuda_graph: {max_seqlen: 0}",
                           "cuda_graph: {max_seqlen: 65}",
                           "cuda_graph: {max_packed_seqs: [1, 2, 3, 4, 5, 6, 7, 8, 9]}",
                           "fsdp: {unit: []}",
                           "data: {documents: []}",
                           "data: {documents: [[]]}",
                           "data: {documents: [[[-1]]]}",
                           "numerics: []",
                           "training: {seed: 9007199254740992}",
                           "offload: {min_bytes: 9223372036854775807}",
                           "fsdp: {bucket_bytes: 99999999999999999999}",
                           "checker: {delays: [{stream: d2h, spin: 0}]}",
                           "expect: {counters: {ops: {min: 2, max: 1}}}",
                           "expect: {counters: {ops: -1}}"}) {
    EXPECT_EQ(reading_rules(with_head(rest)), "Y06") << rest;
  }
  EXPECT_EQ(reading_rules(with_head("data: {documents: [[[]]]}")), "");
}

TEST(Y06, RefusesWordsThatAreNone) {
  for (const char* rest : {"cuda_graph: {impl: full}", "numerics: [fp16]", "data: {kind: json}",
                           "expect: {error: L57}", "expect: {verdict: hold}",
                           "model: {mlp: {activation: 3}}", "data: {tail: \"\"}"}) {
    EXPECT_EQ(reading_rules(with_head(rest)), "Y06") << rest;
  }
  EXPECT_THAT(reading_error(with_head("cuda_graph: {impl: full_iter}")),
              HasSubstr("nearest legal: full_iteration"));
  EXPECT_THAT(reading_error(with_head("cuda_graph: {modules: [attn, mpl]}")),
              StartsWith("file.yaml:3:30: cuda_graph.modules[1]: "));
}

TEST(Y06, RefusesAnItemTwiceInASet) {
  EXPECT_EQ(reading_rules(with_head("numerics: [fp32, fp32]")), "Y06");
  EXPECT_THAT(reading_error(with_head("cuda_graph: {modules: [mamba, attn, mamba]}")),
              HasSubstr("nearest legal: [attn, mamba]"));
  EXPECT_EQ(reading_rules(with_head("checker: {poison: [freed, fresh, freed]}")), "Y06");
  EXPECT_EQ(reading_rules(with_head("training: {recapture_at: [1, 1]}")),
            "");  // A list; legality looks at it.
}

TEST(Y06, RefusesTextsOutOfTheirAlphabet) {
  for (const char* name : {"A", "-a", "a b", "\"\"", "a.b", "\xc3\xa9"}) {
    EXPECT_EQ(reading_rules("schema: 1\nname: " + std::string(name) + "\n"), "Y06") << name;
  }
  EXPECT_EQ(reading_rules("schema: 1\nname: " + std::string(64, 'a') + "\n"), "");
  EXPECT_EQ(reading_rules("schema: 1\nname: " + std::string(65, 'a') + "\n"), "Y06");
  EXPECT_THAT(reading_error("schema: 1\nname: My Name\n"), HasSubstr("nearest legal: my-name"));
  EXPECT_EQ(reading_rules(with_head("model: {pattern: \"\"}")), "Y06");
  EXPECT_EQ(reading_rules(with_head("model: {pattern: \"M*x\"}")), "Y06");
  EXPECT_EQ(reading_rules(with_head("model: {pattern: \"" + std::string(129, 'M') + "\"}")), "Y06");
  EXPECT_EQ(reading_rules(with_head("description: \"" + std::string(501, 'a') + "\"")), "Y06");
  EXPECT_EQ(reading_rules(with_head("data: {digest: abc}")), "Y06");
}

TEST(Y06, HoldsRangesThatEndAtOtherKeys) {
  for (const char* rest :
       {"training: {optimizer: {min_lr: 0.1}}", "training: {optimizer: {lr_warmup: 4}}",
        "training: {eval_every: 4}", "data: {kind: distribution, distribution: {max: 65}}",
        "data: {kind: distribution, distribution: {min: 33}}",
        "data: {kind: distribution, pack_length: 31}",
        "data: {kind: distribution, distribution: {median: 65}}"}) {
    EXPECT_EQ(reading_rules(with_head(rest)), "Y06") << rest;
  }
  EXPECT_EQ(reading_rules(with_head("data: {pack_length: 16}")),
            "");  // Nobody draws from the distribution.
  EXPECT_EQ(reading_rules(with_head(
                "training: {steps: 4, eval_every: 4, optimizer: {min_lr: 0.001, lr_warmup: 4}}")),
            "");
  EXPECT_THAT(reading_error(with_head("training: {eval_every: 4}")), HasSubstr("nearest legal: 3"));
}

TEST(Y07, RequiresSchemaAndName) {
  EXPECT_EQ(reading_rules("name: a\n"), "Y07");
  EXPECT_EQ(reading_rules("schema: 1\n"), "Y07");
  EXPECT_EQ(reading_rules("{}\n"), "Y07 Y07");
  EXPECT_EQ(reading_rules("schema: 2\nname: a\n"), "Y07");
  EXPECT_EQ(reading_rules("schema: 0\nname: a\n"), "Y07");
  EXPECT_EQ(reading_rules("schema: \"1\"\nname: a\n"), "Y05");
}

TEST(Y07, RequiresNumericsInTheLibrary) {
  for (const char* file : {"scenarios/a.yaml", "scenarios/regressions/a.yaml",
                           "/x/scenarios/y/z/a.yaml", "./scenarios/a"}) {
    EXPECT_EQ(reading_rules(with_head(""), file), "Y07") << file;
    EXPECT_EQ(reading_rules(with_head("numerics: [fp32]\n"), file), "") << file;
  }
  for (const char* file :
       {"a.yaml", "my-scenarios/a.yaml", "scenarios.yaml", "/x/scenarios/../a.yaml"}) {
    EXPECT_EQ(reading_rules(with_head(""), file), "") << file;
  }
}

TEST(Stage, PrintsAllErrorsLowestRuleFirst) {
  const std::string text =
      "name: A\n"
      "model: {hiden: 3, hidden: 0, norm_eps: x, norm_eps: y}\n"
      "training: {steps: &a 3}\n";
  EXPECT_EQ(reading_rules(text), "Y02 Y03 Y04 Y05 Y05 Y06 Y06 Y07");
  const ReadResult result = read_scenario_text(text, "file.yaml");
  EXPECT_EQ(result.rule(), "Y02");
}

TEST(Stage, SaysHowManyErrorsItLeavesOut) {
  const auto wrong_items = [](int count) {
    std::string text = with_head("training: {recapture_at: [");
    for (int i = 0; i < count; ++i) text += "x, ";
    return read_scenario_text(text + "]}\nmodell: {}\n", "file.yaml").errors;
  };
  EXPECT_EQ(wrong_items(1000).size(), 1001u);  // And the key that there is not.
  const std::vector<ScenarioError> errors = wrong_items(1003);
  ASSERT_EQ(errors.size(), 1002u);
  EXPECT_EQ(errors[0].rule, "Y03");
  EXPECT_EQ(errors[1001].rule, "Y05");
  EXPECT_EQ(errors[1001].what, "and 3 more");
}

TEST(Stage, KeepsWhatTheFileExpectsWhenItIsRefused) {
  const ReadResult result =
      read_scenario_text(with_head("modell: {}\nexpect: {verdict: refused, error: Y03}\n"), "f");
  EXPECT_EQ(result.rule(), "Y03");
  EXPECT_EQ(result.scenario.expect.verdict, ExpectedVerdict::refused);
  EXPECT_EQ(result.scenario.expect.error, "Y03");
}

}  // namespace
}  // namespace lockstep
