// Attention by cuDNN: causal, over packed documents, grouped query heads, bf16. On a GPU its bits
// are the library's own and outside of arithmetic.md; they do not depend on the run, on capacity or
// on the other documents. The host has no such library: there the ops have the bits of 2.6, read
// through the same tables.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/ops/attention_classes.h"

namespace lockstep {

// The tables that the library reads instead of the documents: lengths and places by class. Slots
// that no document takes have length 0 and lie at the end. Offsets are counted in elements, 64 bits
// wide: with 32, gradients of far rows go astray.
struct AttentionTables {
  static constexpr const char* kName = "attention_tables";
  In<std::int32_t> cu_seqlens;         // [1, capacity + 1] tokens before each slot.
  In<std::int32_t> cu_seqlens_padded;  // [1, capacity + 1] rows before each slot.
  Out<std::int32_t> lengths;           // [1, slots of all classes]
  Out<std::int64_t> offsets;           // [3, offsets of all classes], into qkv, o and lse.
  std::int64_t rows = 0;               // T
  // No document that is to be shown is longer. A longer one is left out.
  std::int64_t max_seqlen = AttentionClasses::kNoBound;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
};
void check(const AttentionTables& op);
void run(HostQueue, const AttentionTables& op);
void run(CudaQueue, const AttentionTables& op);

// The rows of every operand are contiguous: pitch == cols.
struct CudnnAttentionForward {
  static constexpr const char* kName = "cudnn_attention_forward";
  In<bf16> qkv;                   // [T, (heads + 2 * kv_heads) * hd], after RoPE.
  In<std::int32_t> lengths;       // AttentionTables of this pack.
  In<std::int64_t> offsets;       // "
  In<std::int32_t> row_document;  // [1, T]
  Out<bf16> o;                    // [T, heads * hd]
  Out<float> lse;                 // [T, heads]
  Scratch<std::uint8_t>
      workspace;  // [1, bytes] No other call may use it meanwhile: the kernels count tiles in it.
  std::int64_t capacity = 1;                             // For the pack.
  std::int64_t max_seqlen = AttentionClasses::kNoBound;  // As the tables have it.
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
};
// A call for each class.
struct CudnnAttentionBackward {
  static constexpr const char* kName = "cudnn_attention_backward";
  In<bf16> qkv;
  In<bf16> o;
  In<float> lse;
  In<bf16> dout;  // [T, heads * hd]
  In<std::int32_t> lengths;
  In<std::int64_t> offsets;
  In<std::int32_t> row_document;
  Out<bf16> dqkv;  // [T, (heads + 2 * kv_heads) * hd], gradients of the rotated q, k and of v.
  Scratch<std::uint8_t> workspace;
  std::int64_t capacity = 1;
  std::int64_t max_seqlen = AttentionClasses::kNoBound;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
  // For measurements only: false makes one call for all documents, whose gradients of q vary from
  // run to run.
  bool deterministic = true;
};
void check(const CudnnAttentionForward& op);
void run(HostQueue, const CudnnAttentionForward& op);
void run(CudaQueue, const CudnnAttentionForward& op);
void check(const CudnnAttentionBackward& op);
void run(HostQueue, const CudnnAttentionBackward& op);
void run(CudaQueue, const CudnnAttentionBackward& op);

// Returns the computed bytes of workspace where there is no library. cuDNN 9.14 reports at most
// this, and 99 % of it; Backend::workspace_bytes returns the device's own figure.
std::int64_t reckoned_workspace(const CudnnAttentionForward& op);
std::int64_t reckoned_workspace(const CudnnAttentionBackward& op);

}  // namespace lockstep
