// Tables on a terminal of 80 columns: no line is wider. The program runs on a pseudoterminal, since
// it asks its output for the width.
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "tests/support/program.h"

namespace lockstep {
namespace {

// Runs the program on a terminal of that width, without colours; its errors are not kept.
Ran on_terminal(const std::string& words, unsigned short columns) {
  struct winsize size {};
  size.ws_row = 24;
  size.ws_col = columns;
  int terminal = -1;
  const std::string command = shell_command(lockstep_program() + " " + words + " 2>/dev/null");
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) return {};
  if (child == 0) {
    ::setenv("NO_COLOR", "1", 1);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  Ran ran;
  char bytes[4096];
  for (ssize_t count; (count = ::read(terminal, bytes, sizeof bytes)) > 0;)
    ran.out.append(bytes, static_cast<std::size_t>(count));
  ::close(terminal);
  int code = 0;
  ::waitpid(child, &code, 0);
  ran.status = WIFEXITED(code) ? WEXITSTATUS(code) : -1;
  std::erase(ran.out, '\r');
  return ran;
}

std::string lines_over(const std::string& text, std::size_t width) {
  std::istringstream in(text);
  std::string list;
  for (std::string line; std::getline(in, line);)
    if (line.size() > width) list += line + "\n";
  return list;
}

class BenchOnATerminal : public testing::TestWithParam<const char*> {};

TEST_P(BenchOnATerminal, FitsEightyColumns) {
  const std::string words = "bench --device sim --budget 0.02 --section " + std::string(GetParam());
  const Ran narrow = on_terminal(words, 80);
  EXPECT_EQ(narrow.status, 0);
  EXPECT_NE(narrow.out, "");
  EXPECT_EQ(lines_over(narrow.out, 80), "");
}

INSTANTIATE_TEST_SUITE_P(Sections, BenchOnATerminal,
                         testing::Values("scenarios", "kernels", "step", "offload", "memory",
                                         "packing", "fsdp", "pipeline", "experts", "schedules",
                                         "door --cases 5"),
                         [](const auto& one) {
                           const std::string words = one.param;
                           return words.substr(0, words.find(' '));
                         });

TEST(TablesOnATerminal, APipeHasOneLineForARow) {
  const std::string words = "bench --device sim --budget 0.02 --section memory --only shared";
  const Ran wide = run_lockstep(words), narrow = on_terminal(words, 60);
  EXPECT_NE(lines_over(wide.out, 80), "") << wide.out;
  EXPECT_EQ(lines_over(narrow.out, 60), "");
  EXPECT_GT(std::count(narrow.out.begin(), narrow.out.end(), '\n'),
            std::count(wide.out.begin(), wide.out.end(), '\n'));
}

TEST(TablesOnATerminal, PlanPackingFitsEightyColumns) {
  const std::string file = library_path() + "/packing/capacity-edges.yaml";
  const Ran wide = run_lockstep("plan-packing --device sim " + file);
  const Ran narrow = on_terminal("plan-packing --device sim " + file, 80);
  EXPECT_EQ(wide.status, 0) << wide.err;
  EXPECT_EQ(narrow.status, 0);
  EXPECT_NE(lines_over(wide.out, 80), "");
  EXPECT_EQ(lines_over(narrow.out, 80), "");
}

}  // namespace
}  // namespace lockstep
