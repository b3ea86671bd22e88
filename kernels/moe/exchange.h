// Rows on their way between ranks that share the experts of a layer: docs/scenario-reference.md,
// "Experts over ranks". X ranks have E / X experts each. A rank sends S places to every rank, in
// the order of ranks; the first of them hold its rows of that rank's experts, in their order.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Finds the places of all rows. The buffer of a source is that of ExpertLayout. The buffer of an
// owner has the rows of its first expert, source after source, then those of the next expert.
struct ExchangeLayout {
  static constexpr const char* kName = "exchange_layout";
  In<std::int32_t> rows_of_ranks;  // [X, E] rows of each expert in the buffer of each source.
  In<std::int32_t> start;          // [1, E] where they begin in this rank's buffer.
  Out<std::int32_t> sent;          // [1, X * S] the row of this rank's buffer; -1: no row is sent.
  Out<std::int32_t> back;          // [1, R] the place where each row comes back; -1: padding.
  Out<std::int32_t> taken;         // [1, Q] the place from which each row of the owner's buffer is
                                   // taken; -1: padding.
  Out<std::int32_t> answered;   // [1, X * S] the row of the owner's buffer; -1: no row goes back.
  Out<std::int32_t> own_start;  // [1, E / X] rows of each expert of this rank in its buffer.
  Out<std::int32_t> own_rows;   // [1, E / X]
  Out<std::int32_t> segment_start;  // [X, E / X] those of each source; by_expert: [E / X, X].
  Out<std::int32_t> segment_rows;   // As segment_start.
  std::int32_t rank = 0;
  std::int32_t capacity = 0;  // Rows of each segment in the owner's buffer; 0: as many as it has.
  bool by_expert = false;     // Segments are listed as they lie in the owner's buffer.
};

// to[r] = from[place]; +0 where there is no place.
template <class T>
struct MoveRows {
  static constexpr const char* kName = "move_rows";
  In<T> from;              // [N, d]
  In<std::int32_t> place;  // [1, M]
  Out<T> to;               // [M, d]
};

void check(const ExchangeLayout& op);
void run(HostQueue, const ExchangeLayout& op);
void run(CudaQueue, const ExchangeLayout& op);
template <class T>
void check(const MoveRows<T>& op);
template <class T>
void run(HostQueue, const MoveRows<T>& op);
template <class T>
void run(CudaQueue, const MoveRows<T>& op);

// The rows of one expert that one rank sends to another.
struct ExchangedRows {
  std::int32_t row, place, rows;  // First row in this rank's buffer, first place, and how many.
};
LOCKSTEP_HD std::int32_t exchanged_rows(const ExchangeLayout& op, std::int64_t source,
                                        std::int64_t owner, std::int64_t local) {
  return op.rows_of_ranks.data[source * op.rows_of_ranks.pitch + owner * op.own_start.cols + local];
}
LOCKSTEP_HD std::int32_t place_between(const ExchangeLayout& op, std::int64_t source,
                                       std::int64_t owner, std::int64_t local) {
  std::int32_t place = 0;
  for (std::int64_t l = 0; l < local; ++l) place += exchanged_rows(op, source, owner, l);
  return place;
}
// Returns the rows that this rank sends to `owner` for its expert `local`.
LOCKSTEP_HD ExchangedRows rows_to(const ExchangeLayout& op, std::int64_t owner,
                                  std::int64_t local) {
  const auto places = static_cast<std::int32_t>(op.sent.cols / op.rows_of_ranks.rows * owner);
  return {op.start.data[owner * op.own_start.cols + local],
          places + place_between(op, op.rank, owner, local),
          exchanged_rows(op, op.rank, owner, local)};
}
// What this rank receives from another for its own expert `local`.
LOCKSTEP_HD ExchangedRows rows_from(const ExchangeLayout& op, std::int64_t source,
                                    std::int64_t local) {
  const std::int64_t ranks = op.rows_of_ranks.rows;
  const auto places = static_cast<std::int32_t>(op.sent.cols / ranks * source);
  auto row = static_cast<std::int32_t>(local * ranks + source) * op.capacity;
  for (std::int64_t s = 0; op.capacity == 0 && s < local * ranks + source; ++s)
    row += exchanged_rows(op, s % ranks, op.rank, s / ranks);
  return {row, places + place_between(op, source, op.rank, local),
          exchanged_rows(op, source, op.rank, local)};
}

}  // namespace lockstep
