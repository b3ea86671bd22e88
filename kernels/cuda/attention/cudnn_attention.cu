#include "kernels/core/packed_documents.h"
#include "kernels/cuda/attention/cudnn_plans.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/ops/cudnn_attention.h"

namespace lockstep {
namespace {

// One warp per class, which writes its documents in order, then empty slots.
__global__ void place_documents(AttentionTables op, AttentionClasses classes) {
  pdl_begin();
  const int c = static_cast<int>(blockIdx.x);
  const AttentionClass one = classes.list[c];
  const std::int64_t first_offset = one.first + c;
  const std::int64_t widths[] = {
      static_cast<std::int64_t>(op.heads + 2 * op.kv_heads) * op.head_dim,
      static_cast<std::int64_t>(op.heads) * op.head_dim, op.heads};
  const auto put = [&](std::int64_t slot, std::int64_t row) {
    for (int w = 0; w < 3; ++w) at(op.offsets, w, first_offset + slot) = row * widths[w];
  };
  std::int64_t taken = 0;
  for (std::int64_t first = 0; first < slots_of(op); first += kWarp) {
    const std::int64_t d = first + lane_index();
    const std::int64_t length = d < slots_of(op) ? tokens_of(op, d) : -1;
    const bool here = d < slots_of(op) && length > one.above && length <= one.longest;
    const unsigned all = __ballot_sync(0xffffffffu, here);
    const std::int64_t slot = taken + __popc(all & ((1u << lane_index()) - 1));
    if (here && slot < one.slots) {
      at(op.lengths, 0, one.first + slot) = static_cast<std::int32_t>(length);
      put(slot, first_row_of(op, d));
    }
    taken += __popc(all);
  }
  for (std::int64_t slot = taken + lane_index(); slot < one.slots; slot += kWarp) {
    at(op.lengths, 0, one.first + slot) = 0;
    put(slot, op.rows);
  }
  if (lane_index() == 0) put(one.slots, op.rows);
}

}  // namespace

void run(CudaQueue queue, const AttentionTables& op) {
  const AttentionClasses classes(op.rows, slots_of(op), op.max_seqlen);
  launch(queue, dim3(static_cast<unsigned>(classes.count)), dim3(kWarp), kPdl, place_documents, op,
         classes);
}

void run(CudaQueue queue, const CudnnAttentionForward& op) {
  clear_rows_of_no_document(queue, op.row_document, op.o);
  clear_rows_of_no_document(queue, op.row_document, op.lse);
  CudnnPlans::run(queue.stream, op);
}

void run(CudaQueue queue, const CudnnAttentionBackward& op) {
  clear_rows_of_no_document(queue, op.row_document, op.dqkv);
  CudnnPlans::run(queue.stream, op);
}

}  // namespace lockstep
