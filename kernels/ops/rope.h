// Rotary position embedding, half-split over the whole head: arithmetic.md 2.5.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// table[pos, i] = cos, table[pos, hd/2 + i] = sin of pos * f_i.
struct RopeTable {
  static constexpr const char* kName = "rope_table";
  Out<float> table;  // [positions, hd]
  float base = 10000;
};
// Rotates the q and k heads of the fused rows in place; v is untouched; rows of no document stay as
// they are. `backward` rotates the other way.
template <class T>
struct Rope {
  static constexpr const char* kName = "rope";
  Accum<T> qkv;     // [T, (heads + 2 * kv_heads) * hd]: all q heads, all k heads, all v heads.
  In<float> table;  // [positions, hd]
  In<std::int32_t> row_document;  // [1, T]
  In<std::int32_t> row_position;  // [1, T]
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 16;
  bool backward = false;
  // [1, 1] or absent: rises to the words of q, k and v in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
};
void check(const RopeTable& op);
void run(HostQueue, const RopeTable& op);
void run(CudaQueue, const RopeTable& op);
template <class T>
void check(const Rope<T>& op);
template <class T>
void run(HostQueue, const Rope<T>& op);
template <class T>
void run(CudaQueue, const Rope<T>& op);

}  // namespace lockstep
