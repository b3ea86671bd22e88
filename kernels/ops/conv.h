// Causal depthwise convolution + SiLU over packed documents: arithmetic.md 2.7.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

template <class T>
struct ConvForward {
  static constexpr const char* kName = "conv_forward";
  In<T> x;                        // [T, channels]: columns x, B, C of in_proj's output.
  In<float> weight;               // [channels, width], oldest tap first.
  In<float> bias;                 // [1, channels]
  In<std::int32_t> row_document;  // [1, T]
  In<std::int32_t> row_position;  // [1, T]
  Out<T> y;                       // [T, channels]
};
template <class T>
struct ConvBackward {
  static constexpr const char* kName = "conv_backward";
  In<T> x;
  In<float> weight;
  In<float> bias;
  In<T> dy;  // [T, channels]
  In<std::int32_t> row_document;
  In<std::int32_t> row_position;
  Scratch<float> dpre;  // [T, channels]
  Out<T> dx;            // [T, channels]
  Out<float> dweight;   // [channels, width]
  Out<float> dbias;     // [1, channels]
  // [1, 1] or absent: rises to the words of dx in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // Shaped as dweight and dbias, or absent: total = add(total, gradient), the one add of
  // arithmetic.md 1.
  Accum<float> weight_total = {};
  Accum<float> bias_total = {};
};
template <class T>
void check(const ConvForward<T>& op);
template <class T>
void run(HostQueue, const ConvForward<T>& op);
template <class T>
void run(CudaQueue, const ConvForward<T>& op);
template <class T>
void check(const ConvBackward<T>& op);
template <class T>
void run(HostQueue, const ConvBackward<T>& op);
template <class T>
void run(CudaQueue, const ConvBackward<T>& op);

}  // namespace lockstep
