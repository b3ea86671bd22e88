#include "harness/megatron/shell_words.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The words of the last command.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> words;
  const std::vector<ShellCommand> commands = shell_commands(text, "x.sh");
  if (commands.empty()) return words;
  for (const ShellWord& word : commands.back()) words.push_back(word.text);
  return words;
}

std::string refusal(const std::string& text) {
  try {
    shell_commands(text, "x.sh");
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(ShellWords, QuotesBackslashesAndComments) {
  EXPECT_THAT(words("a 'b c' \"d  e\" f\\ g # h"), ElementsAre("a", "b c", "d  e", "f g"));
  EXPECT_THAT(words("a \\\n  --b 1 \\\r\n--c 2\r\n"), ElementsAre("a", "--b", "1", "--c", "2"));
  EXPECT_THAT(words("a --lo\\\nng x#y"), ElementsAre("a", "--long", "x#y"));
  EXPECT_THAT(words("a '' \"\" \"$\" \"\\\"\""), ElementsAre("a", "", "", "$", "\""));
  EXPECT_THAT(words("# it's a comment\na"), ElementsAre("a"));
}

TEST(ShellWords, VariablesAndLists) {
  EXPECT_THAT(words("N=8\na $N ${N}x \"$N y\" '$N'"), ElementsAre("a", "8", "8x", "8 y", "$N"));
  EXPECT_THAT(words("A=\"x  y\"\nb $A \"$A\""), ElementsAre("b", "x", "y", "x  y"));
  EXPECT_THAT(words("A=(x 'y z' # no\n  w)\nb ${A[@]} \"${A[@]}\""),
              ElementsAre("b", "x", "y", "z", "w", "x", "y z", "w"));
  EXPECT_THAT(words("A=(x y)\nA+=(z)\nb ${A[@]} $A"), ElementsAre("b", "x", "y", "z", "x"));
  EXPECT_THAT(words("b ${N:-4} ${M:-}e"), ElementsAre("b", "4", "e"));
  EXPECT_THAT(words("export A=1\nA= b=2 c $A"), ElementsAre("c"));
  EXPECT_THAT(words("A=x\nB=$A/y\nc $B"), ElementsAre("c", "x/y"));
}

TEST(ShellWords, CommandsEndAndRedirectionsAreNoWords) {
  EXPECT_THAT(words("a --b 1 2>&1 | tee log"), ElementsAre("tee", "log"));
  const std::vector<ShellCommand> commands = shell_commands("a --b 1 2>err; c && d", "x.sh");
  ASSERT_EQ(commands.size(), 4u);
  EXPECT_EQ(commands[0].size(), 3u);
  EXPECT_EQ(commands[1].front().text, "err");
}

// What is unknown in the last word of the last command: "line: what; ...".
std::string unknown(const std::string& text) {
  std::string all;
  const std::vector<ShellCommand> commands = shell_commands(text, "x.sh");
  for (const ShellUnknown& one : commands.back().back().unknown)
    all += std::to_string(one.line) + ": " + one.what + "; ";
  return all;
}

TEST(ShellWords, WhatOnlyAShellKnowsStandsBesideItsWord) {
  EXPECT_THAT(unknown("a\nb --c $D"), HasSubstr("2: $D is not set in this file"));
  EXPECT_THAT(unknown("b --c $1"), HasSubstr("$1 is not set"));
  EXPECT_THAT(unknown("b --c $(nproc)"), HasSubstr("$(nproc) is a command's output"));
  EXPECT_THAT(unknown("b --c `nproc`"), HasSubstr("no command is run here"));
  EXPECT_THAT(unknown("N=$(($A*2))\nb --c $N"), HasSubstr("is a command's output"));
  EXPECT_THAT(unknown("A=1\nb --c ${A#x}"), HasSubstr("is more than a shell's variable"));
  EXPECT_THAT(unknown("b --c $X/y$Z"), AllOf(HasSubstr("$X is not"), HasSubstr("$Z is not")));
  EXPECT_EQ(unknown("N=$(nproc)\ncd $HOME\nb --c 1"), "");
  // Only those words of a list that hold it are unknown; a text itself has none of it.
  EXPECT_EQ(unknown("A=(--b $X --c 1)\nd ${A[@]}"), "");
  EXPECT_THAT(words("d $X/y"), ElementsAre("d", "/y"));
  EXPECT_THAT(words("d --b $X"), ElementsAre("d", "--b", ""));
}

TEST(ShellWords, ACommandInQuotesIsReadToo) {
  EXPECT_THAT(words("srun -n 2 bash -c \"torchrun a.py --b 1\""),
              ElementsAre("torchrun", "a.py", "--b", "1"));
  EXPECT_THAT(words("A=3\nsrun /bin/sh -lc 'cd x && python a.py --b $A'"),
              ElementsAre("python", "a.py", "--b", "3"));
  EXPECT_THAT(unknown("srun bash -c \"a.py --b $D\""), HasSubstr("$D is not set"));
  EXPECT_THAT(refusal("A='bash -c \"$A\"'\nbash -c \"$A\""),
              HasSubstr("too many commands in quotes"));
}

TEST(ShellWords, WhatHasNoEndIsRefused) {
  EXPECT_THAT(refusal("a 'b"), HasSubstr("x.sh:1: a ' has no end"));
  EXPECT_THAT(refusal("\na \"b"), HasSubstr("x.sh:2: a \" has no end"));
  EXPECT_THAT(refusal("A=(b\nc"), HasSubstr("the list A has no )"));
  EXPECT_THAT(refusal("a --b ${C"), HasSubstr("a ${ has no }"));
  EXPECT_THAT(refusal("a --b $(c (d)"), HasSubstr("has no end"));
}

// Variables of variables double with every line.
TEST(ShellWords, ATextThatGrowsWithoutEndIsRefused) {
  std::string words = "A0=(x x)\n", letters = "A0=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 60; ++i) {
    const std::string before = "A" + std::to_string(i), now = "A" + std::to_string(i + 1);
    words += now + "=(${" + before + "[@]} ${" + before + "[@]})\n";
    letters += now + "=\"$" + before + "$" + before + "\"\n";
  }
  EXPECT_THAT(refusal(words + "a --b ${A60[@]}"), HasSubstr("too many words"));
  EXPECT_THAT(refusal(letters + "a --b $A60"), HasSubstr("longer than any argument"));
}

RC_GTEST_PROP(ShellWords, AnyTextIsReadOrRefused, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "a", "--b", " ", "\n", "'", "\"", "\\", "$", "{", "}", "(", ")", "A=", "A", "[@]", "`", "#",
      ";", "2>", "=", ":-", "+=", "export ", "\r\n", std::string(1, '\0'), "\xff"));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  try {
    for (const ShellCommand& command : shell_commands(text, "x.sh")) RC_ASSERT(!command.empty());
  } catch (const RequestError& error) {
    RC_ASSERT(std::string(error.what()).rfind("x.sh:", 0) == 0);
  }
}

}  // namespace
}  // namespace lockstep
