// Colours and line breaks for a terminal, and no change for anything else.
#include "harness/base/terminal.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr Terminal kNarrow{.colours = true, .width = 20};

TEST(Terminal, BreaksBetweenWordsAndIndentsWhatFollows) {
  EXPECT_EQ(fitted("one two three four five six\nshort\n", kNarrow),
            "one two three four\n  five six\nshort\n");
  EXPECT_EQ(fitted("  indented words that go on\n", kNarrow), "  indented words\n    that go on\n");
}

TEST(Terminal, LeavesCommandsAndLongWordsWhole) {
  const std::string command = "  replay: lockstep replay lsAbCdEfGhIjKlMnOp --device sim\n";
  EXPECT_EQ(fitted(command, kNarrow), command);
  EXPECT_EQ(fitted("a /a/path/that/is/longer/than/that b\n", kNarrow),
            "a\n  /a/path/that/is/longer/than/that\n  b\n");
}

TEST(Terminal, ChangesNothingWhereThereIsNone) {
  const std::string text = "a line   that is longer than any terminal is wide, one would think\n";
  EXPECT_EQ(fitted(text, {}), text);
  EXPECT_EQ(coloured("violated", Colour::red, {}), "violated");
  EXPECT_EQ(coloured("violated", Colour::red, kNarrow), "\033[31mviolated\033[0m");
}

}  // namespace
}  // namespace lockstep
