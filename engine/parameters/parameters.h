// The memory of a model's parameters: the part that this rank holds and updates (ParameterView),
// and the whole parameter that the passes read (Parameter).
#pragma once

#include "engine/parameters/parameter_view.h"
#include "engine/parameters/shard_layout.h"
#include "engine/tensors/memory_range.h"
#include "engine/tensors/tensor_pool.h"
#include "kernels/core/at.h"
#include "kernels/core/fp8.h"

namespace lockstep {

// Amaxes and exponents under recipe delayed, of n operands of one type (arithmetic.md 5.5).
struct Fp8Scaling {
  Tensor<std::uint32_t> pending, history;  // [1, n], [n, H]
  Tensor<std::int32_t> exponent;           // [1, n]
  Tensor<std::uint32_t> of_ranks;          // [ranks, n] pending of every rank; absent if alone.
};
// Pending amaxes of all operands, in memory that ranks exchange.
struct Fp8Pending {
  Tensor<std::uint32_t> own, of_ranks;  // [1, n], [ranks, n], which is absent if alone.
};
// Amaxes of the weights that this rank owns rows of, those of all ranks, and of whole weights.
struct Fp8ShardAmaxes {
  Tensor<std::uint32_t> own, of_ranks, whole;  // [1, n], [ranks, n], [1, n]
};
// The part of them of one operand, or of that of all experts; absent under recipe current.
struct Fp8Delayed {
  Tensor<std::uint32_t> pending = {}, history = {};  // [1, E], [E, H]
  Tensor<std::int32_t> exponent = {};                // [1, E]

  // The part of `count` experts.
  Fp8Delayed of_experts(std::int64_t first, std::int64_t count) const;
};

// The exponents of a pass.
struct ExponentRule {
  bool measures = true;  // Amaxes are taken: not in an evaluation by exponents of earlier steps.
  bool holds = false;    // Exponents are those of earlier steps.
};

// The codes of a weight's bf16 copy, for the products of its layer; absent unless these are of fp8.
// Weights of E experts lie one below the other; any other weight is that of one. Of experts over
// ranks they are those of this rank.
struct Fp8Weight {
  std::optional<Fp8Layer> layer = {};
  std::int64_t experts = 1;
  // The number of the first among the experts of all ranks, and how many these are.
  std::int64_t first_expert = 0, all_experts = 1;
  Tensor<e4m3> codes = {};          // [E * out, in up to 16]
  Tensor<e4m3> transposed = {};     // [E * in, out up to 16]
  Tensor<std::uint32_t> amax = {};  // [1, E], as all that follow.
  Tensor<std::int32_t> exponent = {};
  Tensor<float> scale = {};  // 2^-exponent
  // The codes last for all passes until the weight may change (Parameters::quantise); otherwise
  // each pass makes its own.
  bool cached = true;
  // The codes are those that ranks gather. Their transposed ones are made of them: once a step, or
  // in each backward pass where gathered weights come and go.
  bool gathered = false, comes_and_goes = false;
  Fp8Delayed delayed_x = {}, delayed = {}, delayed_dy = {};  // For the experts of all ranks.

  explicit operator bool() const { return layer.has_value(); }
  Fp8Delayed own(const Fp8Delayed& operand) const {
    return operand.of_experts(first_expert, experts);
  }
};

// A whole parameter as layers use it. With sharding, its memory may be a slot that holds it only
// around the passes of its unit. Shapes are always given.
struct Parameter {
  int index = 0;
  Tensor<float> weight;               // Absent if the passes read the gathered bf16 copy.
  Tensor<bf16> copy;                  // The weight as bf16 products read it; absent if none does.
  Tensor<float> gradient;             // The accumulator; absent if every g_m is reduced at once.
  Tensor<float> microbatch_gradient;  // g_m; absent if it is added to the accumulator at once.
  // The first microbatch of a step writes its g_m over the accumulator, so that nobody zeroes it.
  // No g_m is -0 (arithmetic.md 0.5), thus the bits are those of a sum from +0.
  bool first_writes = false;
  Fp8Weight fp8 = {};
  // Experts that lie on several ranks have a gradient for each of so many ranks that send rows, so
  // many elements apart. The tensors above are those of the first.
  std::int64_t sources = 1, gradient_stride = 0, microbatch_stride = 0;

  Parameter of_source(std::int64_t source) const;
};

// Makes the codes of a weight for these passes. All passes need a cleared amax word; a backward
// pass keeps the exponent that a forward pass took.
enum class CodesFor : std::uint8_t { all_passes, forward_pass, backward_pass };
void quantise(const Stream& stream, const Parameter& weight, CodesFor passes,
              const ExponentRule& rule);
// Makes the transposed codes of gathered ones.
void transpose_codes(const Stream& stream, const Parameter& weight);

// A bucket's memory on one rank. Tensors are [1, elements].
struct BucketMemory {
  Tensor<float> weight, m, v;  // The shard; absent under no_shard.
  Tensor<bf16> copy;           // Copy of the shard; only narrow buckets have one.
  Tensor<e4m3> codes;          // The copy's, if ranks gather codes.
  Tensor<float> gradient;  // The shard's accumulator; no_shard: this rank's part of `accumulator`.
  // The whole bucket's accumulator, of all its sources; only no_shard and optim have one.
  Tensor<float> accumulator;
};

class Parameters {
 public:
  // Tensors that the ranks exchange come from the pool `exchanged`. `copies`: 2-D weights that bf16
  // products read get a bf16 copy. `layout` is null if nothing is sharded or reduced; it must
  // outlive this. `rank` is that among the ranks of the pipeline stage, which has the parameters of
  // its own pieces: those of others have neither memory nor a view.
  Parameters(TensorPool& pool, TensorPool& exchanged, const Scenario& scenario, bool copies,
             const ShardLayout* layout, int rank, int stage = 0);
  Parameters(const Parameters&) = delete;

  // Writes the initial weights, their copies, and zero moments.
  void initialize(const Stream& stream) const;
  // Makes the bf16 copies from the fp32 weights.
  void round(const Stream& stream) const;
  // Makes the codes of fp8 products from the bf16 copies, whenever these may have changed, but for
  // those that each pass makes.
  // The first function clears their amax words, the second makes the codes of these layers.
  void clear_amaxes(const Stream& stream) const;
  void quantise(const Stream& stream, int first_layer, int end_layer,
                const ExponentRule& rule) const;
  // X and W have one, dY another; all are absent under recipe current.
  const Fp8Scaling& scaling_of_inputs() const { return scaling_of_inputs_; }
  const Fp8Scaling& scaling_of_gradients() const { return scaling_of_gradients_; }
  const Fp8Pending& pending() const { return pending_; }
  // Ranks that gather codes quantise their own rows: measure_shards() takes the rows' amaxes, and
  // quantise_shards() makes their codes by the amaxes of all ranks, `shard_amaxes().whole`.
  const Fp8ShardAmaxes& shard_amaxes() const { return shard_amaxes_; }
  void measure_shards(const Stream& stream) const;
  void quantise_shards(const Stream& stream, const ExponentRule& rule) const;
  // The start of a step: accumulators that its first microbatch adds to.
  void zero_gradients(const Stream& stream) const;
  // What the microbatches of a step have added up.
  std::vector<MemoryRange> accumulators() const;
  // Takes away the value of each g_m that lies in memory of its own.
  void poison_microbatch_gradients(const Stream& stream) const;

  const std::vector<ParameterView>& views() const { return views_; }
  const std::vector<ParameterSpec>& specs() const { return list_.specs; }
  const Parameter& operator[](int index) const { return at(parameters_, index); }

  // Index of the first parameter of a layer (its norm gain), of the final gain, and of the head,
  // which is the embedding if they are tied.
  int of_layer(int layer) const { return at(list_.first_of_layer, layer); }
  int final_gain() const { return list_.final_gain; }
  int head() const { return list_.head; }
  // The head's weight. A tied one's g_m may lie in a slot that the embedding has in its backward
  // pass alone. Where several chunks come between, the head writes its part elsewhere.
  Parameter of_head() const;

  // A tied embedding of several stages: the last one multiplies by a copy of the first one's
  // weight. Memory of the weight as products read it, or none on other stages.
  MemoryRange tied_weight() const;

  // Rows of all gradients in the sequence of the global norm: innermost axes of 2-D gradients,
  // single elements of 1-D.
  std::int64_t norm_rows() const;

  const std::vector<BucketMemory>& buckets() const { return buckets_; }
  // Sets the memory from which the passes read the bucket's parameters, or to which they write
  // their g_m: [ranks * shard] elements.
  void place_weights(int bucket, void* memory);
  void place_gradients(int bucket, float* memory);

 private:
  bool has(const ParameterSpec& spec) const;
  bool copies_tied_weight() const;
  void make_tied_copy(TensorPool& pool);
  bool parts_tied_gradient(const Scenario& scenario) const;
  void make_whole(TensorPool& pool, const ParameterSpec& spec);
  Fp8Weight make_codes(TensorPool& pool, const ParameterSpec& spec) const;
  void make_gathered_codes(TensorPool& pool, TensorPool& exchanged);
  std::vector<std::int64_t> exchanged_bytes(bool delayed) const;
  void make_bucket(TensorPool& pool, TensorPool& exchanged, int index);
  void add_views(const Bucket& bucket, const BucketMemory& memory);
  void zero_memory(const Stream& stream) const;
  std::int64_t fp8_words() const;
  void make_scaling(TensorPool& pool, TensorPool& exchanged, std::int64_t history);

  const ParameterList list_;
  const ShardLayout* layout_;
  Sharding strategy_;
  const bool library_sums_;
  int rank_;
  bool copies_;
  std::uint32_t seed_low_, seed_high_;
  const int stage_;
  const bool tied_;
  const std::vector<std::int64_t> stages_;  // By layer.
  const std::vector<bool> in_region_;       // By layer, from -1: embedding and head.
  std::vector<Parameter> parameters_;
  Tensor<float> head_gradient_;  // Absent unless of_head() says so.
  Fp8Scaling scaling_of_inputs_, scaling_of_gradients_;
  Fp8Pending pending_;
  Fp8ShardAmaxes shard_amaxes_;
  std::vector<ParameterView> views_;
  std::vector<BucketMemory> buckets_;
};

}  // namespace lockstep
