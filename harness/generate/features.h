// Traits of random scenarios that must occur together: named predicates, and how often each pair
// occurred.
#pragma once

#include <bitset>
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

inline constexpr std::size_t kMostTraits = 256;
using Traits = std::bitset<kMostTraits>;  // Indexed as trait_names().

struct TraitName {
  std::string name;
  bool boundary = false;  // A size at an edge, not a switch.
  // A size of cases of its own (rare.h), or drawn where it is asked for alone (outside.h): its
  // pairs are not counted.
  bool rare = false;
};
// A new kind of scenario adds its rows in features.cpp; reports and tests follow.
const std::vector<TraitName>& trait_names();
Traits features_of(const Scenario& scenario);
// False for two that exclude each other in every legal scenario.
bool can_meet(std::size_t a, std::size_t b);

std::string to_hex(const Traits& traits);
Traits traits_from_hex(const std::string& hex);

// Counts how often each feature, and each pair of them, was drawn.
class Distribution {
 public:
  void add(const Traits& traits);
  std::int64_t cases() const { return cases_; }
  std::int64_t count(std::size_t trait) const { return pairs_[trait * kMostTraits + trait]; }
  // a < b
  std::int64_t count(std::size_t a, std::size_t b) const { return pairs_[a * kMostTraits + b]; }
  std::size_t pairs_met() const { return met_; }
  // Rare sizes have no part in it, nor in pairs_met() and never_met().
  static std::size_t pairs_that_can_meet();
  std::vector<std::pair<std::size_t, std::size_t>> never_met() const;

  std::string table() const;  // For people.
  // Counts of cases in fp8: by the keys of fp8, and by all else that may be beside it; the least
  // first.
  std::vector<std::pair<std::string, std::int64_t>> met_in_fp8() const;
  boost::json::object to_json() const;

 private:
  std::int64_t cases_ = 0;
  std::size_t met_ = 0;
  std::vector<std::int64_t> pairs_ = std::vector<std::int64_t>(kMostTraits * kMostTraits);
};

}  // namespace lockstep
