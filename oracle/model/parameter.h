// A trainable parameter of the reference model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::oracle {

// One trainable parameter and its optimizer state, in the index order of arithmetic.md 0.5.
struct Parameter {
  std::string name;
  int layer = -1;
  std::int64_t rows = 0, cols = 0;  // A 1-D parameter is [1, n].
  bool is_vector = false;
  std::vector<float> weight, gradient, m,
      v;  // gradient: accumulated over the step so far, before clipping.
};

}  // namespace lockstep::oracle
