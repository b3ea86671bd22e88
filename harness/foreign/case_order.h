// The order in which a campaign on an engine judges its cases: those that meet what was not met yet
// come first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "harness/foreign/coverage.h"
#include "harness/foreign/projection.h"

namespace lockstep::foreign {

// A case that waits. Which one is next follows from the cases and from what was judged before, so
// equal seeds have equal orders; a case itself does not depend on its place in the order.
class CaseOrder {
 public:
  struct Waiting {
    std::int64_t index = 0;
    Scenario given;
    std::optional<Scenario> projected = {};
    std::vector<std::size_t> features = {};  // The projected scenario has them.
    double effort = 0;                       // The least case has 1.
  };

  // `met`: what was judged before. `draw` gives the cases one after the other, nothing at their
  // end.
  CaseOrder(const boost::json::object& honours, Coverage met,
            std::function<std::optional<Waiting>()> draw)
      : honours_(honours), met_(std::move(met)), draw_(std::move(draw)) {}

  // Nothing after the last.
  std::optional<Waiting> next();
  // The engine judged or refused the last that next() gave; a case that cannot be projected is
  // neither.
  void judged(const Waiting& one);
  void refused(const Waiting& one);

 private:
  void fill();
  double worth(const Waiting& one) const;
  // The waiting case with the most worth, of those that have the feature if one is given.
  std::list<Waiting>::iterator best_with(std::optional<std::size_t> feature);

  const boost::json::object& honours_;
  Coverage met_;
  std::function<std::optional<Waiting>()> draw_;
  std::list<Waiting> waiting_;
  std::map<std::int64_t, std::int64_t> taken_by_ranks_;
  std::int64_t taken_ = 0, ranks_ = 1;
  bool at_the_end_ = false;
};

}  // namespace lockstep::foreign
