// Scenarios around one that a user has (`fuzz --like FILE`): what its file names stays, everything
// else is drawn.
#pragma once

#include <set>
#include <string>

#include "harness/generate/choices.h"
#include "harness/generate/outside.h"
#include "scenarios/scenario.h"

namespace lockstep {

class Likeness {
 public:
  // A legal scenario and the keys that its file has. A file that says where documents come from
  // names the whole section `data`.
  Likeness(Scenario scenario, std::set<std::string> keys);
  // Throws RequestError for a file that is refused.
  static Likeness of_file(const std::string& path);

  // A legal scenario. In one draw of four one of the keys is drawn as well. Where no draw fits the
  // keys, it is the file's own under another schedule.
  Scenario draw(Choices& choices, const Outside& outside) const;

  const Scenario& scenario() const { return scenario_; }
  const std::set<std::string>& keys() const { return keys_; }
  // Tells equal ones from others: the canonical form, and the keys.
  std::string identity() const;

 private:
  Scenario scenario_;
  std::set<std::string> keys_;
};

}  // namespace lockstep
