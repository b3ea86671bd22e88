// Causal attention over packed documents with grouped query heads: arithmetic.md 2.6.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

template <class T>
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  In<T> qkv;                           // [T, (heads + 2 * kv_heads) * hd], after RoPE.
  In<std::int32_t> cu_seqlens;         // [1, capacity + 1] tokens before each slot.
  In<std::int32_t> cu_seqlens_padded;  // [1, capacity + 1] rows before each slot.
  In<std::int32_t> row_document;       // [1, T]
  Out<T> o;                            // [T, heads * hd]
  Out<float> lse;                      // [T, heads]
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
  // [1, 1] or absent: rises to the words of o in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
};
template <class T>
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  In<T> qkv;
  In<T> o;
  In<float> lse;
  In<T> dout;  // [T, heads * hd]
  In<std::int32_t> cu_seqlens;
  In<std::int32_t> cu_seqlens_padded;
  In<std::int32_t> row_document;
  Scratch<float> delta;             // [T, heads]
  Scratch<std::int32_t> next_tile;  // [1, 2] What blocks of a GPU take next.
  Out<T> dqkv;  // [T, (heads + 2 * kv_heads) * hd], gradients of the rotated q, k and of v.
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
};
template <class T>
void check(const AttentionForward<T>& op);
template <class T>
void run(HostQueue, const AttentionForward<T>& op);
template <class T>
void run(CudaQueue, const AttentionForward<T>& op);
template <class T>
void check(const AttentionBackward<T>& op);
template <class T>
void run(HostQueue, const AttentionBackward<T>& op);
template <class T>
void run(CudaQueue, const AttentionBackward<T>& op);

}  // namespace lockstep
