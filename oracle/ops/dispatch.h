// The rows of the experts' buffer to which rows of a microbatch go (arithmetic.md 2.11).
#pragma once

#include <optional>

#include "oracle/ops/router.h"

namespace lockstep::oracle {

// ceil(factor * k * pack_length / E) in double, left to right. Returns nothing if no pair is
// dropped.
inline std::optional<std::int64_t> expert_capacity(const Scenario::Model::Moe& moe,
                                                   std::int64_t rows, Mutant mutant) {
  if (!moe.capacity_factor) return std::nullopt;
  const double exact = moe.capacity_factor->value() * static_cast<double>(moe.top_k) *
                       static_cast<double>(rows) / static_cast<double>(moe.experts);
  const auto floor = static_cast<std::int64_t>(exact);
  const bool whole = static_cast<double>(floor) == exact || mutant("moe-capacity-is-rounded-down");
  return floor + (whole ? 0 : 1) + (mutant("moe-capacity-is-one-more") ? 1 : 0);
}

inline constexpr std::int64_t kDropped = -1;

// The destinations of pairs of row and slot. One buffer holds all experts, one after the other.
struct Dispatch {
  std::vector<std::int64_t> first,
      rows;                 // [E]: of the expert's rows in the buffer; pairs it takes.
  std::int64_t buffer = 0;  // Rows of the buffer, with padding.
  Matrix<std::int64_t>
      place;  // [T, slots]: row of the buffer, or kDropped; rows of no document too.
};

// Calls take for each pair in the order of (row, slot).
template <class Take>
void for_each_pair(const PackedBatch& pack, std::int64_t slots, bool slots_first, Take take) {
  for (std::int64_t outer = 0; outer < (slots_first ? slots : 1); ++outer) {
    for (const Piece& run : pack.runs) {
      for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
        if (slots_first) take(i, outer);
        for (std::int64_t s = 0; s < slots && !slots_first; ++s) take(i, s);
      }
    }
  }
}

// `padded`: every expert has as many rows as its capacity; otherwise as many as it takes.
template <class Real>
Dispatch dispatch(const PackedBatch& pack, const Routing<Real>& routing,
                  std::optional<std::int64_t> capacity, bool padded, Mutant mutant) {
  const std::size_t experts = routing.chosen.size();
  const Matrix<std::int64_t>& chosen = routing.experts;
  Dispatch to{std::vector<std::int64_t>(experts), std::vector<std::int64_t>(experts), 0,
              Matrix<std::int64_t>(chosen.rows, chosen.cols)};
  for (std::int64_t& place : to.place.values) place = kDropped;
  for_each_pair(pack, chosen.cols, mutant("moe-priority-takes-slots-first"),
                [&](std::int64_t i, std::int64_t s) {
                  std::int64_t& taken = to.rows[chosen.row(i)[s]];
                  if (!capacity || taken < *capacity) to.place.row(i)[s] = taken++;
                });
  for (std::size_t e = 0; e < experts; ++e) {
    to.first[e] = to.buffer;
    to.buffer += padded ? *capacity : to.rows[e];
  }
  for_each_pair(pack, chosen.cols, false, [&](std::int64_t i, std::int64_t s) {
    std::int64_t& place = to.place.row(i)[s];
    if (place != kDropped) place += to.first[chosen.row(i)[s]];
  });
  return to;
}

// Returns the experts' inputs.
template <class Real>
Matrix<Real> dispatched(const Dispatch& dispatch, const Matrix<Real>& x) {
  Matrix<Real> to(dispatch.buffer, x.cols);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t s = 0; s < dispatch.place.cols; ++s) {
      const std::int64_t place = dispatch.place.row(i)[s];
      if (place != kDropped) std::copy_n(x.row(i), x.cols, to.row(place));
    }
  }
  return to;
}

}  // namespace lockstep::oracle
