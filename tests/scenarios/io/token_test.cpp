// Tokens: a scenario in a word, and what becomes of a word that was damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "scenarios/documents/raw_documents.h"
#include "tests/scenarios/random_scenario.h"
#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Why a token is refused; "" if it is not.
std::string complaint(const std::string& token) {
  try {
    read_token(token);
    return "";
  } catch (const TokenError& error) {
    return error.what();
  }
}

TEST(Token, IsShortAndMadeOfSafeCharacters) {
  const std::string token = make_token(named("a-scenario"));
  EXPECT_THAT(token, StartsWith("lsA"));  // Version 1 in base64.
  EXPECT_LT(token.size(), 100u);
  EXPECT_EQ(
      token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
      std::string::npos);
  EXPECT_EQ(canonical_form(read_token(token)), canonical_form(named("a-scenario")));
}

// The bytes were made by Python's zlib and a table-free CRC-32C, from the canonical form alone.
// They stay as they are when a key is added: a token that was printed once keeps its meaning.
TEST(Token, ReadsTheOneOfAnotherCompressor) {
  EXPECT_EQ(canonical_form(read_token("lsAawDVWfrBgAAA8Yb0BGjVd1oVTda1Y1WdaNV3WhVN2yrOgA")),
            canonical_form(named("x")));
}

TEST(Token, ReadsBackEqual) {
  const TemporaryFolder folder;
  const auto here = std::filesystem::current_path();
  write_documents(folder);
  std::filesystem::current_path(folder.path());  // A token's data paths start where it is read.
  EXPECT_TRUE(rc::check("a token reads back equal", [&] {
    Scenario scenario = *random_scenario("");
    scenario.numerics.resize(1);
    const Scenario back = read_token(make_token(scenario));
    if (scenario.data.kind == DataKind::text || scenario.data.kind == DataKind::jsonl) {
      scenario.data.digest = data_digest(scenario);
    }
    RC_ASSERT(canonical_form(back) == canonical_form(scenario));
  }));
  std::filesystem::current_path(here);
}

// Neither the spare bits of its last digit nor those behind the last block.
TEST(Token, HasNoSpareBits) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  for (std::int64_t seed = 0; seed < 40; ++seed) {
    Scenario scenario = named("a-scenario");
    scenario.training.seed = seed * seed * seed;
    const std::string token = make_token(scenario);
    ASSERT_EQ(complaint(token), "");
    for (std::size_t back = 1; back <= 3; ++back) {
      for (const char* digit = kDigits; *digit != '\0'; ++digit) {
        std::string other = token;
        other[other.size() - back] = *digit;
        EXPECT_EQ(complaint(other).empty(), other == token) << other << " for " << token;
      }
    }
  }
}

TEST(Token, NoticesEveryChangedCharacter) {
  const std::string token = make_token(named("some-scenario"));
  for (std::size_t i = 0; i < token.size(); ++i) {
    for (const char other : {'A', 'x', '_', '!', '\0', ' '}) {
      std::string damaged = token;
      damaged[i] = other;
      if (damaged == token) continue;
      EXPECT_NE(complaint(damaged), "") << i << other;
    }
  }
}

TEST(Token, NoticesEveryCutAndEveryTail) {
  const std::string token = make_token(named("some-scenario"));
  for (std::size_t length = 0; length < token.size(); ++length)
    EXPECT_NE(complaint(token.substr(0, length)), "") << length;
  for (const char* tail : {"A", "AA", "AAAA", "=", "\n"})
    EXPECT_NE(complaint(token + tail), "") << tail;
}

TEST(Token, SaysWhatToDo) {
  const std::string token = make_token(named("x"));
  std::string newer = token;
  newer[3] = 'g';  // The version's lower bits.
  EXPECT_THAT(complaint(newer), HasSubstr("version"));
  EXPECT_THAT(complaint(newer), HasSubstr("YAML file"));
  EXPECT_THAT(complaint("hello"), HasSubstr("begins with `ls`"));
  EXPECT_THAT(complaint(""), HasSubstr("YAML file"));
  EXPECT_THAT(complaint(token.substr(0, 10)), HasSubstr("cut off"));
}

// Version 1, any checksum, a length of 4 GiB: refused before memory is asked for.
TEST(Token, ChecksTheLengthBeforeInflating) {
  EXPECT_THAT(complaint("lsAQAAAAD_____AAAA"), HasSubstr("more than 1 MiB"));
}

TEST(Token, NamesOnePrecision) {
  Scenario scenario = named("x");
  scenario.numerics = {Numerics::fp32, Numerics::bf16};
  EXPECT_THROW(make_token(scenario), std::invalid_argument);
}

TEST(Token, RefusesOtherBytesThanItWasMadeWith) {
  const TemporaryFolder folder;
  write_documents(folder);
  Scenario scenario = named("x");
  scenario.data.kind = DataKind::jsonl;
  scenario.data.path = folder / "records.jsonl";
  scenario.model.vocab = 256;
  const std::string token = make_token(scenario);
  EXPECT_EQ(complaint(token), "");
  EXPECT_EQ(read_token(token).data.digest, data_digest(scenario));
  folder.file("records.jsonl", "{\"text\": \"abd\"}\n");
  EXPECT_THAT(complaint(token), HasSubstr("[Y08]"));
}

}  // namespace
}  // namespace lockstep
