// A choice sequence: the integers that a generator consumed. Generation, replay and shrinking share
// it, as in Hypothesis: editing the sequence and generating again gives a smaller scenario that is
// still legal.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

class Choices {
 public:
  // Fresh: draws come from `seed`.
  explicit Choices(std::uint64_t seed) : state_(seed) {}
  // Replay: draws come from `given`, each reduced to its bound; past its end every draw is 0, the
  // simplest choice.
  explicit Choices(std::vector<std::uint64_t> given) : given_(std::move(given)), replay_(true) {}

  // An integer in [0, bound), bound >= 1. 0 is the simplest choice wherever it is used.
  std::uint64_t draw(std::uint64_t bound);
  // An integer in [low, high]; `low` is the simplest.
  std::int64_t between(std::int64_t low, std::int64_t high);
  // True with probability 1/n; false is the simplest.
  bool one_in(std::uint64_t n) { return draw(n) == n - 1; }
  // One of the list; its first item is the simplest.
  template <class T>
  T pick(const std::vector<T>& list) {
    return at(list, draw(list.size()));
  }

  // The consumed choices, reduced to their bounds.
  const std::vector<std::uint64_t>& taken() const { return taken_; }

 private:
  std::uint64_t next();
  std::uint64_t state_ = 0;
  std::vector<std::uint64_t> given_;
  bool replay_ = false;
  std::vector<std::uint64_t> taken_;
};

}  // namespace lockstep
