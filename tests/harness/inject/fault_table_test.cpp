// The tables of faults and of aliases against the sources.
#include "harness/inject/fault_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "harness/inject/document_fault.h"
#include "harness/inject/fault_aliases.h"
#include "tests/support/tree.h"

namespace lockstep {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The names at the fault points below a folder of the sources.
std::set<std::string> points_in(const std::string& folder) {
  std::set<std::string> found;
  const std::regex point("\\bfaulty?(?:<[^>]*>)?\\(\\s*\"([a-z0-9-]+)\"");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root_path() + "/" + folder)) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), point), end; it != end; ++it)
      found.insert((*it)[1]);
  }
  return found;
}

std::set<std::string> as_set(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

TEST(FaultTable, NamesThePointsOfTheHostKernels) {
  EXPECT_EQ(points_in("kernels/host"), as_set(kernel_faults()));
}

TEST(FaultTable, NamesThePointsOfTheEngineAndTheAliases) {
  std::set<std::string> planted = points_in("engine");
  for (const FaultAlias& alias : fault_aliases()) {
    EXPECT_FALSE(planted.contains(std::string(alias.name)))
        << alias.name << " is an alias and a line of the engine";
    planted.insert(std::string(alias.name));
  }
  EXPECT_EQ(planted, as_set(engine_faults()));
}

TEST(FaultTable, NamesEachFaultOnce) {
  std::vector<std::string> all = kernel_faults();
  const std::vector<std::string> engine = engine_faults();
  EXPECT_TRUE(std::is_sorted(engine.begin(), engine.end()));
  all.insert(all.end(), engine.begin(), engine.end());
  EXPECT_EQ(as_set(all).size(), all.size());
}

// The failure lists the classes that there are.
TEST(FaultTable, HasAKnownClassInEachRow) {
  for (const auto& rows : {kernel_fault_rows(), engine_fault_rows(), document_fault_rows()}) {
    for (const FaultRow& row : rows)
      EXPECT_THAT(kBugClasses, testing::Contains(row.bug_class)) << row.name;
  }
}

TEST(FaultTable, KnowsWhereEachFaultIs) {
  for (const auto& names : {kernel_faults(), engine_faults()}) {
    for (const std::string& name : names) {
      const std::string place(fault_place(name));
      const std::string text = text_of(std::filesystem::path(root_path()) / place);
      EXPECT_NE(text.find("\"" + name + "\""), std::string::npos) << name << ": " << place;
    }
  }
  EXPECT_EQ(fault_place("no-fault"), "");
}

}  // namespace
}  // namespace lockstep
