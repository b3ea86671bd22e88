// The parameters of a model in the index order of arithmetic.md 0.5: names, shapes, how they begin.
// No device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/init.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Which of the experts of a layer are a rank's (parallel.expert).
struct ExpertPlace {
  std::int64_t ranks = 1, rank = 0;
};
ExpertPlace expert_place(const Scenario& scenario, int rank);

struct ParameterSpec {
  std::string name;
  int layer = -1;  // Symbol index; -1 for embedding, final norm and head.
  int index = 0;
  std::int64_t rows = 0, cols = 0;  // A vector is [1, n].
  bool is_vector = false;
  Init init = Init::zero;
  float std = 0;
  std::int32_t width = 0;
  bool copied = false;  // Products in bf16 read a copy of it.
  // Its gradient's op can add into the accumulator: it needs no memory for g_m then.
  bool accumulates = false;
  // In fp8 numerics its products multiply codes (arithmetic.md 5.1).
  std::optional<Fp8Layer> fp8_layer = {};
  std::int64_t experts = 1;  // Their weights lie one below the other: [E * out, in].
  // Rows and experts are those of this rank; other ranks have the rest, in the order of ranks.
  ExpertPlace place = {};

  std::int64_t all_rows() const { return rows * place.ranks; }
  std::int64_t first_row() const { return rows * place.rank; }
  // Rows of the global norm's sequence: innermost axes of a 2-D one, single elements of a 1-D one.
  std::int64_t norm_rows() const { return is_vector ? cols : rows; }
};

// The parameters of a layer, as offsets from its norm gain.
struct MambaParameter {
  enum Offset : int {
    norm_gain,
    in_proj,
    conv_weight,
    conv_bias,
    dt_bias,
    a_log,
    d,
    gate_gain,
    out_proj
  };
};
struct AttentionParameter {
  enum Offset : int { norm_gain, qkv, proj };
};
struct MlpParameter {
  enum Offset : int { norm_gain, fc1, fc2 };
};
struct MoeParameter {
  // The last two only if it is shared.
  enum Offset : int { norm_gain, router, fc1, fc2, shared_fc1, shared_fc2 };
};

struct ParameterList {
  explicit ParameterList(const Scenario::Model& model, ExpertPlace place = {});

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
  void add_experts(const Scenario::Model& model, ExpertPlace place, int layer, Recipe in,
                   Recipe out);
};

}  // namespace lockstep
