// Mamba-2 chunk scan over packed documents: arithmetic.md 2.8. Head h uses group h / (heads /
// groups).
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

template <class T>
struct ScanForward {
  static constexpr const char* kName = "scan_forward";
  In<T> xbc;          // [T, d_inner + 2 * groups * N]: columns x, B, C, stored outputs of the conv.
  In<T> dt;           // [T, heads]: raw, stored in_proj columns.
  In<float> dt_bias;  // [1, heads]
  In<float> a_log;    // [1, heads]
  In<float> d;        // [1, heads]
  In<std::int32_t> cu_seqlens;         // [1, capacity + 1] tokens before each slot.
  In<std::int32_t> cu_seqlens_padded;  // [1, capacity + 1] rows before each slot.
  In<std::int32_t> row_document;       // [1, T]
  In<std::int32_t> chunk_document;     // [1, max_chunks]
  In<std::int32_t> chunk_start;        // [1, max_chunks]
  In<std::int32_t> chunk_rows;         // [1, max_chunks]
  Scratch<float> states;               // [max_chunks, heads * N * P]: state at each chunk's start.
  Out<T> y;                            // [T, d_inner]
  std::int32_t heads = 1;
  std::int32_t groups = 1;
  std::int32_t state = 16;   // N
  std::int32_t chunk = 128;  // Q
};
template <class T>
struct ScanBackward {
  static constexpr const char* kName = "scan_backward";
  In<T> xbc;
  In<T> dt;
  In<float> dt_bias;
  In<float> a_log;
  In<float> d;
  In<T> dy;  // [T, d_inner]
  In<std::int32_t> cu_seqlens;
  In<std::int32_t> cu_seqlens_padded;
  In<std::int32_t> row_document;
  In<std::int32_t> chunk_document;
  In<std::int32_t> chunk_start;
  In<std::int32_t> chunk_rows;
  Scratch<float> states;   // [max_chunks, heads * N * P]
  Scratch<float> dstates;  // [max_chunks, heads * N * P]
  Scratch<float> rows;     // [T, 3 * heads]: per-row terms of ddt_bias, dA_log, dD.
  Out<T> dxbc;             // [T, d_inner + 2 * groups * N]
  Out<T> ddt;              // [T, heads]
  Out<float> ddt_bias;     // [1, heads]
  Out<float> da_log;       // [1, heads]
  Out<float> dd;           // [1, heads]
  std::int32_t heads = 1;
  std::int32_t groups = 1;
  std::int32_t state = 16;
  std::int32_t chunk = 128;
  // [1, 1] or absent: rises to the words of ddt in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, heads] or absent: total = add(total, gradient), the one add of arithmetic.md 1.
  Accum<float> dt_bias_total = {};
  Accum<float> a_log_total = {};
  Accum<float> d_total = {};
};
template <class T>
void check(const ScanForward<T>& op);
template <class T>
void run(HostQueue, const ScanForward<T>& op);
template <class T>
void run(CudaQueue, const ScanForward<T>& op);
template <class T>
void check(const ScanBackward<T>& op);
template <class T>
void run(HostQueue, const ScanBackward<T>& op);
template <class T>
void run(CudaQueue, const ScanBackward<T>& op);

}  // namespace lockstep
