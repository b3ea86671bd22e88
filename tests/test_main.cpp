// The main function of every test program. A program holds the tests of one folder; ctest runs
// those of one file at a time, each file in a process of its own:
// --file=engine/train/trainer_test.cpp, beside what GoogleTest takes.
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kFile = "--file=";

struct Names {
  std::set<std::string> wanted, others;
};

// The names of all tests, split by whether their file is tests/`file`; suites of other files as one
// pattern each.
Names split_by_file(const std::string& file) {
  const std::string tail = "/tests/" + file;
  Names names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    std::set<std::string> others;
    bool all_others = true;
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const bool wanted = ("/" + std::string(test.file())).ends_with(tail);
      (wanted ? names.wanted : others).insert(std::string(suite.name()) + "." + test.name());
      all_others = all_others && !wanted;
    }
    if (all_others) others = {suite.name() + std::string(".*")};
    names.others.merge(others);
  }
  return names;
}

// Adds the tests of the other files to those that the filter takes out. Returns what is wrong with
// the file, or "".
std::string choose(const std::string& file) {
  const Names names = split_by_file(file);
  if (names.wanted.empty()) return "this program has no test of tests/" + file;
  std::string filter = testing::GTEST_FLAG(filter);
  char separator = filter.find('-') == std::string::npos ? '-' : ':';
  for (const std::string& name : names.others) {
    if (names.wanted.count(name)) return "two files have a test " + name;
    filter += separator + name;
    separator = ':';
  }
  testing::GTEST_FLAG(filter) = filter;
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string wrong = word.starts_with(kFile)
                                  ? choose(std::string(word.substr(kFile.size())))
                                  : "unknown argument " + std::string(word);
    if (wrong.empty()) continue;
    std::cerr << wrong << "\n";
    return 2;
  }
  const int status = RUN_ALL_TESTS();
  // A filter that matches nothing must not pass.
  if (testing::GTEST_FLAG(list_tests) || testing::UnitTest::GetInstance()->test_to_run_count() > 0)
    return status;
  std::cerr << "no test matches " << testing::GTEST_FLAG(filter) << "\n";
  return 1;
}
