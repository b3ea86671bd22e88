// Common parts of all layers of the pattern: pre-norm, mixer, residual. A layer has only parameters
// and constants. Everything that its backward pass needs is in a `Saved` that belongs to a slot, so
// a forward pass may be repeated, captured or replayed in any order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/data/packed_batch.h"
#include "engine/memory/shared_memory.h"
#include "engine/nn/recomputed.h"
#include "engine/offload/offloader.h"
#include "engine/parameters/parameters.h"
#include "engine/plan/regions.h"
#include "engine/tensors/ones.h"
#include "engine/tensors/stored_tensor.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// Memory for the codes of the operands that a product is about to read; absent but in fp8.
struct CodeScratch {
  Tensor<std::uint8_t> x = {}, dy = {}, transposed_dy = {};
};

// One microbatch on its way through the model.
struct PassContext {
  const Stream& stream;
  const PackedBatch& pack;
  Tensor<StepState> state;
  bool training = true;                 // Evaluation applies no dropout and counts no pairs.
  Tensor<std::uint8_t> workspace = {};  // For products on this stream; absent in fp32.
  CodeScratch codes = {};
  ExponentRule exponents = {};  // Read by products in fp8.
  bool first = false;           // Whether a step begins with it: its gradients may begin the sums.

  bool recomputes = false;  // The calls compute again what was not saved.

  // Names the part of the layer to which the next calls belong.
  void part(const char* name) const {
    stream.device().place.part = recomputes ? StepLocation::kRecompute : name;
  }
  PassContext recomputing() const {
    PassContext again = *this;
    again.recomputes = true;
    return again;
  }
};

// The accumulator that the op of a gradient adds it to, beside writing g_m; absent if every g_m is
// reduced at once.
Tensor<float> total_of(const Parameter& parameter);
// Whether the op of a gradient writes the accumulator instead of adding to it.
bool begins_sum(const PassContext& pass, const Parameter& parameter);

// Whether the amax of an operand is taken from what is stored, or was by the op that stored it.
enum class AmaxFrom : std::uint8_t { operand, producer };
// Returns the word that the producer of an operand raises, cleared; absent if none is taken.
Tensor<std::uint32_t> cleared_amax(const PassContext& pass, Tensor<std::uint32_t> amax);

// The tensors that a layer saves in its forward pass, in one slot. `x` is the residual stream it
// read, `out` the one it wrote.
template <class T>
struct Saved {
  virtual ~Saved() = default;
  Tensor<T> x, out;
  // The amax of the gradient of `out` and that of `x`, for products in fp8 that read them: the op
  // that writes the gradient raises it. Absent if no product does, or if a copy writes it.
  Tensor<std::uint32_t> dout_amax, dx_amax;
  Tensor<float> losses;  // [1, 2]: load-balancing and z loss of an `E`; absent otherwise.
  // For an `E` with host_sync: rows that the experts of this rank have received.
  std::int64_t rows_in_use = 0;
};

// Makes the tensors of a Saved and lists them by name for a judge, in the order in which they are
// written.
class SavedMaker {
 public:
  // `shared`: null if slots share no memory. `slot` counts those of all chunks, `own_slot` those of
  // the chunk that the offloader serves.
  SavedMaker(TensorPool& pool, const Offloader& offloader, SharedMemory* shared, int slot,
             int own_slot, std::vector<NamedTensor>& names, std::int64_t rows)
      : pool_(pool),
        offloader_(offloader),
        shared_(shared),
        slot_(slot),
        own_slot_(own_slot),
        names_(names),
        rows_(rows) {}
  void enter_layer(int layer) { layer_ = layer; }
  std::int64_t rows() const { return rows_; }

  // [T, cols], written by `op`. `shared`: the memory of a tensor that is computed again instead of
  // being saved.
  template <class T>
  Tensor<T> make(const std::string& name, const char* op, std::int64_t cols,
                 Tensor<T> shared = {}) {
    return shared ? shared : add<T>(name, op, rows_, cols);
  }
  // [1, T]: one value per row, always fp32.
  Tensor<float> make_row(const std::string& name, const char* op) {
    return add<float>(name, op, 1, rows_);
  }
  // [rows, cols]: a buffer of the experts. `ragged`: routing decides how many of its rows are in
  // use.
  template <class T>
  Tensor<T> make_buffer(const std::string& name, const char* op, std::int64_t rows,
                        std::int64_t cols, bool ragged, Tensor<T> shared = {}) {
    if (shared) return shared;
    const Tensor<T> made = add<T>(name, op, rows, cols);
    names_.back().rows = ragged ? NamedTensor::Rows::ragged_buffer : NamedTensor::Rows::buffer;
    return made;
  }
  // Lists values that are compared under that name, whoever made their memory.
  void show(const std::string& name, const char* op, StoredValues values,
            NamedTensor::Rows rows = NamedTensor::Rows::pack) {
    names_.push_back({full_name(name), layer_, op, values, rows});
  }
  // The same of what the backward pass writes.
  void show_backward(const std::string& name, const char* op, StoredValues values) {
    show(name, op, values, NamedTensor::Rows::words);
    names_.back().of_backward = true;
  }
  // Makes a tensor that is saved but not compared, such as integers.
  template <class T>
  Tensor<T> make_unnamed(const char* name, std::int64_t rows, std::int64_t cols) {
    return place<T>(full_name(name), rows, cols);
  }

  // Returns the memory of a gradient that has only a shape; any other, and none, as it is.
  template <class T>
  Tensor<T> place_scratch(const std::string& name, Tensor<T> shape) {
    const bool has_memory = shape.data != nullptr || shape.size() == 0;
    return has_memory ? shape : place<T>(full_name(name), shape.rows, shape.cols);
  }

 private:
  std::string full_name(const std::string& name) const {
    return (layer_ < 0 ? "" : "layers." + std::to_string(layer_) + ".") + name;
  }
  template <class T>
  Tensor<T> place(const std::string& name, std::int64_t rows, std::int64_t cols) {
    const std::int64_t bytes = rows * cols * std::int64_t{sizeof(T)};
    void* place = offloader_.place(name, own_slot_, static_cast<std::size_t>(bytes));
    if (place == nullptr && shared_ != nullptr) place = shared_->find(name, slot_, bytes);
    return place == nullptr ? pool_.make<T>(rows, cols)
                            : tensor(static_cast<T*>(place), rows, cols);
  }
  template <class T>
  Tensor<T> add(const std::string& name, const char* op, std::int64_t rows, std::int64_t cols) {
    const Tensor<T> made = place<T>(full_name(name), rows, cols);
    names_.push_back({full_name(name), layer_, op, made});
    return made;
  }
  TensorPool& pool_;
  const Offloader& offloader_;
  SharedMemory* const shared_;
  const int slot_, own_slot_;
  std::vector<NamedTensor>& names_;
  std::int64_t rows_;
  int layer_ = -1;
};

// Makes the gradients on their way through a layer: for all layers of a kind and all slots, since
// one stream runs one after the other.
class ScratchMaker {
 public:
  // `shared`: whether the layers and slots have gradients of their own in shared memory
  // (SavedMaker::place_scratch). What is made here has no memory then, but a shape.
  ScratchMaker(TensorPool& pool, bool shared) : pool_(pool), shared_(shared) {}

  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    return shared_ ? tensor(static_cast<T*>(nullptr), rows, cols) : pool_.make<T>(rows, cols);
  }
  // Makes a tensor that keeps its value from one layer to the next.
  template <class T>
  Tensor<T> make_lasting(std::int64_t rows, std::int64_t cols) {
    return pool_.make<T>(rows, cols);
  }

 private:
  TensorPool& pool_;
  bool shared_;
};

template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  // `x` is the tensor that the layer reads in that slot.
  virtual std::unique_ptr<Saved<T>> make_saved(SavedMaker& maker, Tensor<T> x) const = 0;
  virtual void forward(const PassContext& pass, Saved<T>& saved) const = 0;
  // Overwrites dx, the gradient of saved.x; overwrites each g_m and adds it to its accumulator.
  virtual void backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                        Tensor<T> dx) const = 0;

  // Run the stages of `part` only. A layer with a single stage ignores `part`.
  virtual void forward_part(const PassContext& pass, Saved<T>& saved, const Part&) const {
    forward(pass, saved);
  }
  virtual void backward_part(const PassContext& pass, const Saved<T>& saved, const Part&,
                             Tensor<T> dout, Tensor<T> dx) const {
    backward(pass, saved, dout, dx);
  }
  // Gives a value, 1 or the integer 0, to all that the backward pass of `part` reads and other
  // stages of the layer write.
  virtual void fill_outside(const Stream&, const Saved<T>&, const Part&, const Ones&) const {}
};

inline bool has_dropout(const Scenario::Model& model) { return model.dropout.millionths != 0; }
// The constants of a dropout site (arithmetic.md 0.4). `site` is 0 for a mixer's output, 1 for the
// embedding.
Dropout dropout_site(const Scenario::Model& model, int layer, int site);

// The weight that products and the embedding read: the fp32 master, or its bf16 copy.
template <class T>
Tensor<T> weight_of(const Parameter& parameter) {
  if constexpr (std::is_same_v<T, float>) {
    return parameter.weight;
  } else {
    return parameter.copy;
  }
}

// acc = add(acc, g_m), once per microbatch and parameter (arithmetic.md 1). A parameter without an
// accumulator is left alone: its g_m is reduced across ranks after each microbatch.
void accumulate(const PassContext& pass, const Parameter& parameter);

// The pre-norm residual block around every mixer: norm before it, dropout and residual add after
// it.
template <class T>
class PreNormBlock {
 public:
  // `shared_norm` is memory for the norm's output if that is recomputed, and absent if it is saved.
  PreNormBlock(const Parameter& gain, const Scenario::Model& model, int layer,
               Tensor<T> shared_norm)
      : gain_(gain),
        eps_(static_cast<float>(model.norm_eps)),
        dropout_(dropout_site(model, layer, 0)),
        shared_norm_(shared_norm) {}

  // `passing`: the memory of a norm that is not saved; absent if each slot saves it.
  Tensor<T> make_norm(SavedMaker& maker, Tensor<T> passing = {}) const;
  // `amax`: that of y, which rises to what is stored; or absent.
  void norm(const PassContext& pass, Tensor<T> x, Tensor<T> y, Tensor<float> rstd,
            Tensor<std::uint32_t> amax = {}) const;
  // Recomputes y, unless it was saved. Must precede the reads of y in a backward pass.
  void recompute_norm(const PassContext& pass, Tensor<T> x, Tensor<T> y, Tensor<float> rstd) const;
  void residual(const PassContext& pass, Tensor<T> x, Tensor<T> mixed, Tensor<T> out) const;
  // Returns the gradient of the mixer's output. Without dropout that is dout itself, whose padding
  // rows are +0, and no op runs; otherwise it is written to `dmixed`, and raises `amax`.
  Tensor<T> residual_backward(const PassContext& pass, Tensor<T> dout, Tensor<T> dmixed,
                              Tensor<std::uint32_t> amax = {}) const;
  // The tensor in which residual_backward leaves that gradient.
  Tensor<T> mixed_gradient(const PassContext& pass, Tensor<T> dout, Tensor<T> dmixed) const {
    return active(pass).active ? dmixed : dout;
  }
  AmaxFrom amax_of_mixed_gradient(const PassContext& pass, const Saved<T>& saved) const {
    return active(pass).active || saved.dout_amax ? AmaxFrom::producer : AmaxFrom::operand;
  }
  // The amax that the layer behind raises, of those of the mixer's last product; with dropout none.
  Tensor<std::uint32_t> dout_amax(const Tensor<std::uint32_t>& amax) const {
    return dropout_.active ? Tensor<std::uint32_t>{} : amax;
  }
  // dx = dout + the gradient of the norm's input saved.x, with one store (arithmetic.md 2.3).
  void norm_backward(const PassContext& pass, const Saved<T>& saved, Tensor<float> rstd,
                     Tensor<T> dy, Tensor<T> dout, Tensor<T> dx) const;

 private:
  Dropout active(const PassContext& pass) const;
  const Parameter& gain_;
  float eps_;
  Dropout dropout_;
  Tensor<T> shared_norm_;
};

}  // namespace lockstep
