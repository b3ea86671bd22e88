// Which of the features that an engine announces were met by the scenarios of a command, alone and
// in pairs (docs/engine-protocol.md, section 12).
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep::foreign {

class Coverage {
 public:
  explicit Coverage(const boost::json::object& honours);
  // A scenario as projected, that was judged.
  void add(const Scenario& scenario) { add(features_of(scenario)); }
  // Features are told by their numbers: those that a projected scenario has.
  std::vector<std::size_t> features_of(const Scenario& scenario) const;
  void add(const std::vector<std::size_t>& features);
  // The features of a scenario that the engine refused. They were not met.
  void add_refused(const std::vector<std::size_t>& features);
  // The rarity is a sum over pairs of them, to which one that was never met
  // adds 1, and one that was met often next to nothing. It is the less the more often a pair of
  // them was refused that was never met.
  double rarity_of(const std::vector<std::size_t>& features) const;

  std::string text() const;
  boost::json::object to_json() const;

 private:
  // A value of a key beside the neutral one; no value: any other.
  struct Feature {
    std::string key, name;
    boost::json::value value = {};
  };
  void add_feature(const std::string& key, const boost::json::value& value);
  bool has(const Feature& feature, const Scenario& scenario) const;
  void add_pairs(const std::vector<std::size_t>& features, std::vector<std::int64_t>& counts) const;
  std::int64_t count(std::size_t a, std::size_t b) const {
    return counts_[a * features_.size() + b];
  }

  std::vector<Feature> features_;
  std::vector<std::int64_t> counts_;   // By two features; of one alone on the diagonal.
  std::vector<std::int64_t> refused_;  // Likewise.
  std::int64_t cases_ = 0;
};

}  // namespace lockstep::foreign
