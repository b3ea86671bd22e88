// A parameter as this rank holds and updates it.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/contract.h"
#include "kernels/core/fp8.h"
#include "kernels/core/operand.h"

namespace lockstep {

// With sharding, a view has some of the parameter's rows, or none (then the tensors have no
// elements and no memory), and a vector is [1, elements of the rank]. A parameter that is cut into
// several buckets has a view in each bucket, in order of rows; every other parameter has one view.
// Views come in order of `index`.
struct ParameterView {
  std::string name;
  int layer = -1;
  int index = 0;
  bool is_vector = false;
  Tensor<float> weight = {};
  Tensor<float> gradient = {};  // The accumulator of the step.
  Tensor<float> m = {}, v = {};
  // g_m of the microbatch whose backward pass ran last; absent if g_m is added to the accumulator
  // at once.
  Tensor<float> microbatch_gradient = {};
  Tensor<bf16> copy = {};   // The weight as bf16 products read it; absent if none does.
  Tensor<e4m3> codes = {};  // The copy's; absent unless ranks gather them.
  std::int64_t first = 0;   // The tensors begin with this element of the whole parameter.
  std::int64_t full_rows = 0, full_cols = 0;  // Shape of the whole parameter.
};

}  // namespace lockstep
