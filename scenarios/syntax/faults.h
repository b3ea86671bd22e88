// The faults found in a file so far. Reading goes on after a fault, so that all faults of a stage
// are reported.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scenarios/syntax/scenario_error.h"

namespace lockstep {

struct FilePlace {
  int line = 0, column = 0;  // 1-based; 0 if the file as a whole is meant.
};

class Faults {
 public:
  explicit Faults(std::string file) : file_(std::move(file)) {}

  void add(const char* rule, FilePlace place, const std::string& key, const std::string& what,
           const std::string& why, const std::string& nearest = "") {
    if (++count_[rule] > kMost) return;
    errors_.push_back({rule, file_, place.line, place.column, key, what, why, nearest});
  }

  // Whether further faults of a rule are only counted: then nobody need look for their nearest.
  bool is_full(const char* rule) const {
    const auto found = count_.find(rule);
    return found != count_.end() && found->second >= kMost;
  }
  bool empty() const { return errors_.empty(); }
  std::size_t size() const { return errors_.size(); }
  std::vector<ScenarioError>& all() { return errors_; }

  // Whether the value of `key` or anything inside of it was refused.
  bool hit(const std::string& key) const {
    return std::any_of(errors_.begin(), errors_.end(), [&](const ScenarioError& error) {
      return error.key.compare(0, key.size(), key) == 0 &&
             (error.key.size() == key.size() || error.key[key.size()] == '.' ||
              error.key[key.size()] == '[');
    });
  }

  // Lowest rule first, then by place.
  std::vector<ScenarioError> take() {
    for (const auto& [rule, count] : count_) {
      if (count <= kMost) continue;
      ScenarioError more = *std::find_if(errors_.rbegin(), errors_.rend(),
                                         [&](const auto& e) { return e.rule == rule; });
      more.what = "and " + std::to_string(count - kMost) + " more";
      more.why = "the first " + std::to_string(kMost) + " of a rule are listed";
      more.nearest.clear();
      more.stands_for = count - kMost;
      errors_.push_back(more);
    }
    std::stable_sort(
        errors_.begin(), errors_.end(), [](const ScenarioError& a, const ScenarioError& b) {
          return std::tie(a.rule, a.line, a.column) < std::tie(b.rule, b.line, b.column);
        });
    return std::move(errors_);
  }

 private:
  // Limit for each rule: a hostile megabyte could hold 200,000 faults.
  static constexpr int kMost = 1000;
  std::string file_;
  std::vector<ScenarioError> errors_;
  std::map<std::string, int> count_;
};

}  // namespace lockstep
