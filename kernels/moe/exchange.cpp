#include "kernels/moe/exchange.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const ExchangeLayout& op) {
  const auto ranks = op.rows_of_ranks.rows, experts = op.rows_of_ranks.cols;
  require(ranks > 0 && experts % ranks == 0, "each rank has equally many experts");
  require_shape(op.rows_of_ranks, ranks, experts, "rows_of_ranks is [X, E]");
  require_shape(op.start, 1, experts, "start is [1, E]");
  require_shape(op.sent, 1, op.sent.cols, "sent is [1, X * S]");
  require(op.sent.cols % ranks == 0, "each rank is sent equally many places");
  require_shape(op.back, 1, op.back.cols, "back is [1, R]");
  require_shape(op.taken, 1, op.taken.cols, "taken is [1, Q]");
  require_shape(op.answered, 1, op.sent.cols, "answered is [1, X * S]");
  require_shape(op.own_start, 1, experts / ranks, "own_start is [1, E / X]");
  require_shape(op.own_rows, 1, experts / ranks, "own_rows is [1, E / X]");
  const std::int64_t lists = op.by_expert ? experts / ranks : ranks;
  require_shape(op.segment_start, lists, experts / lists, "segment_start is [X, E / X]");
  require_shape(op.segment_rows, lists, experts / lists, "segment_rows is [X, E / X]");
  require(op.rank >= 0 && op.rank < ranks, "the rank is one of X");
  require(op.capacity >= 0 && (op.capacity == 0 || op.taken.cols == experts * op.capacity),
          "a padded buffer of an owner has E * C rows");
}
template <class T>
void check(const MoveRows<T>& op) {
  require_shape(op.from, op.from.rows, op.to.cols, "from is [N, d]");
  require_shape(op.place, 1, op.to.rows, "place is [1, M]");
  require_shape(op.to, op.to.rows, op.to.cols, "to is [M, d]");
}
template void check(const MoveRows<float>&);
template void check(const MoveRows<bf16>&);

}  // namespace lockstep
