// Runs `lockstep fuzz` in a folder of its own, and reads what it leaves there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/program.h"

namespace lockstep {

// A log's lines by case; a case that is there twice is a failure.
inline std::map<std::int64_t, boost::json::object> cases_of(const std::string& log) {
  std::map<std::int64_t, boost::json::object> cases;
  std::istringstream lines(slurp(log));
  std::string line;
  EXPECT_TRUE(std::getline(lines, line) &&
              boost::json::parse(line).as_object().contains("campaign"));
  while (std::getline(lines, line)) {
    boost::json::object one = boost::json::parse(line).as_object();
    if (one.at("case").is_null()) continue;
    one.erase("seconds");
    const std::int64_t index = one.at("case").to_number<std::int64_t>();
    EXPECT_TRUE(cases.emplace(index, std::move(one)).second)
        << "case " << index << " is there twice";
  }
  return cases;
}

inline std::set<std::int64_t> numbers_of(const std::string& log) {
  std::set<std::int64_t> numbers;
  for (const auto& [index, one] : cases_of(log)) numbers.insert(index);
  return numbers;
}

inline std::set<std::int64_t> first(std::int64_t count) {
  std::set<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.insert(i);
  return numbers;
}

inline std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Most runs are of the profile near-legal, which never touches a device and so makes hundreds of
// cases a second.
class Campaign : public testing::Test {
 protected:
  // A sanitizer makes cases as much longer as everything else.
  static Ran fuzz(const std::string& words) {
    const bool has_limit = words.find("--timeout") != std::string::npos;
    const std::string limit =
        patience() == 1 || has_limit ? "" : "--timeout " + std::to_string(60 * patience()) + " ";
    return run_lockstep("fuzz --device sim " + limit + words);
  }
  static Ran near(const std::string& words) {
    return fuzz("--profile near-legal --jobs 1 " + words);
  }
  TemporaryFolder folder_;
};

}  // namespace lockstep
