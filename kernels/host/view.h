// The operand type of product() in either numerics.
#pragma once

#include "kernels/host/fda16.h"
#include "kernels/host/product.h"

namespace lockstep {

template <class T>
struct ViewOf {
  using Type = MatrixView;
};
template <>
struct ViewOf<bf16> {
  using Type = Bf16View;
};
template <class T>
using View = typename ViewOf<T>::Type;

}  // namespace lockstep
