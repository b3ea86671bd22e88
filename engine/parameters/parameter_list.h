// The parameters of a model in the index order of arithmetic.md 0.5: names, shapes, how they begin. No device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/initialize.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct ParameterSpec {
  std::string name;
  int layer = -1;  // Symbol index; -1 for embedding, final norm and head.
  int index = 0;
  std::int64_t rows = 0, cols = 0;  // A vector is [1, n].
  bool is_vector = false;
  Init init = Init::zero;
  float std = 0;
  std::int32_t width = 0;
  bool copied = false;       // Products in bf16 read a copy of it.
  bool accumulates = false;  // Its gradient's op can add into the accumulator: it needs no memory for g_m then.

  // Rows of the global norm's sequence: innermost axes of a 2-D one, single elements of a 1-D one.
  std::int64_t norm_rows() const { return is_vector ? cols : rows; }
};

struct ParameterList {
  explicit ParameterList(const Scenario::Model& model);

  std::vector<ParameterSpec> specs;
  std::vector<int> first_of_layer;  // Index of each layer's norm gain.
  int final_gain = 0;
  int head = 0;  // The embedding if tied.

 private:
  struct Recipe {
    Init init;
    float std;
    std::int32_t width;
    bool copied = true;  // If drawn from a normal distribution.
    bool accumulates = false;
  };
  void add(const std::string& name, int layer, std::int64_t rows, std::int64_t cols, Recipe recipe);
  void add_vector(const std::string& name, int layer, std::int64_t size, Init init);
  void add_mamba(const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_attention(const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_mlp(const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_experts(const Scenario::Model& model, int layer, Recipe in, Recipe out);
};

}  // namespace lockstep
