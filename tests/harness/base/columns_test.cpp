// Tables that are printed row by row: one line each, or lines that fit a terminal.
#include "harness/base/columns.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr Terminal kNarrow{.colours = false, .width = 20};

const std::vector<Column> kTable{{"mode", 8}, {"ms/step", 12, "ms", 8}, {"memory MB", 12, "MB", 6}};

TEST(Columns, AreOneLineWhereThereIsNoTerminal) {
  const Columns columns(kTable, {});
  EXPECT_EQ(columns.head("fits"), "mode         ms/step   memory MB  fits\n");
  EXPECT_EQ(columns.row({"eager", "1.234", "17.0"}, "no, and that is a long note"),
            "eager          1.234        17.0  no, and that is a long note\n");
  EXPECT_EQ(columns.row({"a long name", "1.234"}), "a long name       1.234\n");
}

TEST(Columns, AreAsWideOnATerminalThatHasTheRoom) {
  const Columns columns(kTable, {.colours = false, .width = 32});
  EXPECT_FALSE(columns.is_narrow());
  EXPECT_EQ(columns.head(), "mode         ms/step   memory MB\n");
}

TEST(Columns, AreNarrowAndGoOnInAFurtherLine) {
  const Columns columns(kTable, kNarrow);
  EXPECT_TRUE(columns.is_narrow());
  EXPECT_EQ(columns.head(), "mode          ms\n            MB\n");
  EXPECT_EQ(columns.row({"eager", "1.234", "17.0"}), "eager      1.234\n          17.0\n");
  EXPECT_EQ(columns.row({"a long name", "1.234"}, "no"), "a long name\n           1.234  no\n");
  EXPECT_EQ(columns.row({"eager"}, "not run: there is no GPU"),
            "eager   \n        not run:\n        there is no\n        GPU\n");
}

TEST(Columns, KeepABlankBeforeAValueThatIsTooWide) {
  EXPECT_EQ(Columns(kTable, {}).row({"eager", "1234567890.123", "17.0"}),
            "eager    1234567890.123        17.0\n");
}

TEST(Formatted, IsWhatPrintfPrints) {
  EXPECT_EQ(formatted("%-4s|%5.1f %%", "ab", 2.25), "ab  |  2.2 %");
  EXPECT_EQ(formatted("%300d", 7).size(), 300u);
}

}  // namespace
}  // namespace lockstep
