// Launches of bf16 attention: one block per multiprocessor, each with its share of the tiles.
#pragma once

#include "kernels/cuda/attention/backward_bf16.cuh"
#include "kernels/cuda/attention/forward_bf16.cuh"

namespace lockstep {

template <class Block, class Shared, class Op>
void launch_attention_tiles(CudaQueue queue, void (*kernel)(Op), const Op& op) {
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  const LaunchOptions options = {.shared_bytes = sizeof(Shared), .overlaps = true};
  launch(queue, dim3(multiprocessors()), dim3(Block::kThreads), options, kernel, op);
}

template <class Block, int kWidth>
void launch_attention_width(CudaQueue queue, const AttentionForward<bf16>& op) {
  launch_attention_tiles<Block, ForwardShared<Block, kWidth>>(
      queue, attention_forward_bf16<Block, kWidth>, op);
}
// Multiprocessors that run out of key tiles go on with query tiles.
template <class Block, int kWidth>
void launch_attention_width(CudaQueue queue, const AttentionBackward<bf16>& op) {
  using Shared = BackwardShared<Block, kWidth>;
  launch(queue, dim3(blocks_for(op.o.rows, kWarps)), dim3(kThreads), kPdl,
         attention_prepare_backward, op);
  launch_attention_tiles<Block, Shared>(queue, attention_backward_bf16<Block, true, kWidth>, op);
  launch_attention_tiles<Block, Shared>(queue, attention_backward_bf16<Block, false, kWidth>, op);
}
// Heads of up to 64 channels are padded with zeros to 64, others to 128.
template <class Block, class Op>
void launch_attention_block(CudaQueue queue, const Op& op) {
  if (op.head_dim <= 64) {
    launch_attention_width<Block, 64>(queue, op);
  } else {
    launch_attention_width<Block, 128>(queue, op);
  }
}
template <class Op>
void launch_attention_bf16(CudaQueue queue, const Op& op) {
  if (op.o.rows * op.heads <=
      std::int64_t{TileBlock<2>::kRows} * multiprocessors()) {  // At most one wide tile for each.
    launch_attention_block<TileBlock<1>>(queue, op);
  } else {
    launch_attention_block<TileBlock<2>>(queue, op);
  }
}

}  // namespace lockstep
