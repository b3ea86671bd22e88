#include <gtest/gtest.h>

#include "harness/base/subprocess.h"

namespace lockstep {
namespace {

TEST(LastWords, AreThoseOfTheBrokenContractAndItsOp) {
  const std::string contract = "x.cpp:3: broken contract in void f(): n is even\n";
  EXPECT_EQ(last_words("hello\n" + contract), "broken contract in void f(): n is even");
  EXPECT_EQ(
      last_words(contract + kRunningOp + "(embed, rank 0, step 1); before it x differs\nbye\n"),
      "broken contract in void f(): n is even (embed, rank 0, step 1); before it x differs");
  // The last one counts: an earlier process may have said one.
  EXPECT_EQ(last_words(contract + kRunningOp + "(embed)\n" + contract),
            "broken contract in void f(): n is even");
}

TEST(LastWords, AreElseTheLastLine) {
  EXPECT_EQ(last_words("a\nb\n\n"), "b");
  EXPECT_EQ(last_words("a"), "a");
  EXPECT_EQ(last_words(""), "");
}

}  // namespace
}  // namespace lockstep
