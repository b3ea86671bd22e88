#include "kernels/cuda/common/vec8.cuh"
#include "kernels/moe/exchange.h"

namespace lockstep {
namespace {

__global__ void clear_places(ExchangeLayout op) {
  pdl_begin();
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (x < op.sent.cols) at(op.sent, 0, x) = at(op.answered, 0, x) = -1;
  if (x < op.back.cols) at(op.back, 0, x) = -1;
  if (x < op.taken.cols) at(op.taken, 0, x) = -1;
}

// One block for each expert of this rank and each other rank, and as many for what it sends.
__global__ void exchange_layout(ExchangeLayout op) {
  pdl_begin();
  const std::int64_t own = op.own_start.cols, ranks = op.rows_of_ranks.rows;
  const std::int64_t peer = blockIdx.x / own, local = blockIdx.x % own;
  if (blockIdx.y == 0) {
    const ExchangedRows to = rows_to(op, peer, local);
    for (std::int64_t k = threadIdx.x; k < to.rows; k += kThreads) {
      if (to.place + k >= op.sent.cols || to.row + k >= op.back.cols) continue;
      at(op.sent, 0, to.place + k) = static_cast<std::int32_t>(to.row + k);
      at(op.back, 0, to.row + k) = static_cast<std::int32_t>(to.place + k);
    }
    return;
  }
  const ExchangedRows from = rows_from(op, peer, local);
  for (std::int64_t k = threadIdx.x; k < from.rows; k += kThreads) {
    if (from.place + k >= op.sent.cols || from.row + k >= op.taken.cols) continue;
    at(op.taken, 0, from.row + k) = static_cast<std::int32_t>(from.place + k);
    at(op.answered, 0, from.place + k) = static_cast<std::int32_t>(from.row + k);
  }
  if (threadIdx.x != 0) return;
  const std::int64_t list = op.by_expert ? local : peer, place = op.by_expert ? peer : local;
  at(op.segment_start, list, place) = from.row;
  at(op.segment_rows, list, place) = from.rows;
  if (peer != 0) return;
  const ExchangedRows last = rows_from(op, ranks - 1, local);
  at(op.own_start, 0, local) = from.row;
  at(op.own_rows, 0, local) = last.row - from.row + (op.capacity == 0 ? last.rows : op.capacity);
}

// A warp for each row; +0 where there is no place. `Part`: what a lane moves at a time.
template <class Part, class T>
__global__ void move_rows(MoveRows<T> op) {
  pdl_begin();
  const std::int64_t row = warp_item();
  if (row >= op.to.rows) return;
  const std::int32_t place = at(op.place, 0, row);
  Part* const to = reinterpret_cast<Part*>(&at(op.to, row, 0));
  const Part* const from =
      reinterpret_cast<const Part*>(place < 0 ? nullptr : &at(op.from, place, 0));
  const std::int64_t parts =
      op.to.cols * static_cast<std::int64_t>(sizeof(T)) / static_cast<std::int64_t>(sizeof(Part));
  for (std::int64_t k = lane_index(); k < parts; k += kWarp) to[k] = from ? from[k] : Part{};
}

}  // namespace

void run(CudaQueue queue, const ExchangeLayout& op) {
  std::int64_t most = op.sent.cols;
  for (const std::int64_t cols : {op.back.cols, op.taken.cols}) most = most > cols ? most : cols;
  launch(queue, dim3(blocks_for(most, kThreads)), dim3(kThreads), kPdl, clear_places, op);
  launch(queue, dim3(static_cast<unsigned>(op.rows_of_ranks.cols), 2), dim3(kThreads), kPdl,
         exchange_layout, op);
}
template <class T>
void run(CudaQueue queue, const MoveRows<T>& op) {
  const bool wide = all_vectorizable(op.from, op.to) && op.to.cols * sizeof(T) % 16 == 0;
  launch(queue, dim3(blocks_for(op.to.rows, kWarps)), dim3(kThreads), kPdl,
         wide ? move_rows<uint4, T> : move_rows<T, T>, op);
}
template void run(CudaQueue, const MoveRows<float>&);
template void run(CudaQueue, const MoveRows<bf16>&);

}  // namespace lockstep
