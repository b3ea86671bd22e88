// The memory of a model's parameters: what this rank holds and updates (ParameterView), and what the passes see, which
// is always whole (Parameter).
#pragma once

#include "engine/parameters/parameter_view.h"
#include "engine/parameters/shard_layout.h"
#include "engine/tensors/tensor_pool.h"

namespace lockstep {

// A whole parameter as layers use it. Sharded, its memory may be a slot that holds it only around the passes of its
// unit. Shapes are always given.
struct Parameter {
  int index = 0;
  Tensor<float> weight;               // Absent where the passes read the copy of a shard.
  Tensor<bf16> copy;                  // The weight as bf16 products read it; absent where none does.
  Tensor<float> gradient;             // The accumulator; absent where every g_m is reduced at once.
  Tensor<float> microbatch_gradient;  // g_m; absent where it goes into the accumulator at once.
};

// A bucket's memory on one rank. Tensors are [1, elements].
struct BucketMemory {
  Tensor<float> weight, m, v;  // The shard; absent under no_shard.
  Tensor<bf16> copy;           // Of the shard; narrow buckets.
  Tensor<float> gradient;      // The shard's accumulator; no_shard: this rank's part of `accumulator`.
  Tensor<float> accumulator;   // The whole bucket's; no_shard and optim.
};

class Parameters {
 public:
  // What ranks exchange of a bucket is made of the pool `exchanged`. `copies`: 2-D weights that bf16 products read get
  // a bf16 copy. `layout`: null where nothing is sharded or reduced; it must outlive this.
  Parameters(TensorPool& pool, TensorPool& exchanged, const Scenario& scenario, bool copies, const ShardLayout* layout,
             int rank);
  Parameters(const Parameters&) = delete;

  // Writes the initial weights, their copies, and zero moments.
  void initialize(const Stream& stream) const;
  // Makes the bf16 copies from the fp32 weights.
  void round(const Stream& stream) const;
  // The start of a step.
  void zero_gradients(const Stream& stream) const;

  const std::vector<ParameterView>& views() const { return views_; }
  const std::vector<ParameterSpec>& specs() const { return list_.specs; }
  const Parameter& operator[](int index) const { return parameters_[static_cast<std::size_t>(index)]; }

  // Index of the first parameter of a layer (its norm gain), of the final gain, and of the head (the embedding if
  // tied).
  int of_layer(int layer) const { return list_.first_of_layer[static_cast<std::size_t>(layer)]; }
  int final_gain() const { return list_.final_gain; }
  int head() const { return list_.head; }

  // Rows of all gradients in the sequence of the global norm: innermost axes of 2-D ones, single elements of 1-D ones.
  std::int64_t norm_rows() const;

  const std::vector<BucketMemory>& buckets() const { return buckets_; }
  // From now on the passes read the bucket's parameters, or write their g_m, here: [ranks * shard] elements.
  void place_weights(int bucket, void* memory);
  void place_gradients(int bucket, float* memory);

 private:
  void make_whole(TensorPool& pool, const ParameterSpec& spec);
  std::vector<std::int64_t> exchanged_bytes() const;
  void make_bucket(TensorPool& pool, TensorPool& exchanged, int index);
  void add_views(const Bucket& bucket, const BucketMemory& memory);
  void zero_memory(const Stream& stream) const;

  const ParameterList list_;
  const ShardLayout* layout_;
  Sharding strategy_;
  const bool library_sums_;
  int rank_;
  bool copies_;
  std::uint32_t seed_low_, seed_high_;
  std::vector<Parameter> parameters_;
  std::vector<ParameterView> views_;
  std::vector<BucketMemory> buckets_;
};

}  // namespace lockstep
