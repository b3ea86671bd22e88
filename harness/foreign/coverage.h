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
  // A sum over pairs of them, to which one that was never met adds 1, and one that was met often
  // next to nothing. It is the less the more the features are like those of a refused scenario.
  double rarity_of(const std::vector<std::size_t>& features) const;
  // The features by how seldom they were judged, seldomest first. Refusals count a little.
  std::vector<std::size_t> seldomest_first() const;

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
  // The engine refused a scenario for one of its pairs that were never met. The share of these
  // pairs that `features` has, of the refused scenario whose share is the largest.
  double likeness_to_refused(const std::vector<std::size_t>& features) const;
  std::int64_t count(std::size_t a, std::size_t b) const {
    return counts_[a * features_.size() + b];
  }

  std::vector<Feature> features_;
  std::vector<std::int64_t> counts_;               // By two features; of one alone on the diagonal.
  std::vector<std::int64_t> times_refused_;        // By feature.
  std::vector<std::vector<std::size_t>> refused_;  // The latest.
  std::int64_t cases_ = 0;
};

}  // namespace lockstep::foreign
