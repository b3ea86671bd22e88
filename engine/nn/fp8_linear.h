// The products of a linear layer in fp8 numerics: arithmetic.md 5.4 and 5.5, both recipes. The
// weight's codes are those of Parameters::quantise; X and dY are quantised here, in the pass. Of
// experts, one object has the products of all.
#pragma once

#include "engine/nn/layer.h"
#include "kernels/core/fp8.h"
#include "kernels/core/row_segments.h"

namespace lockstep {

// The tensors of such a layer in a slot. X has R rows in S segments: those of the pack in one, or
// those of the experts' buffer.
struct Fp8Saved {
  // Transposed: [in, R up to 16 + 16 (S - 1)]. Where the host knows how many rows the experts have,
  // the tensor's rows follow one another more closely, as if R were that number.
  Tensor<e4m3> x;
  Tensor<std::uint32_t> x_amax, dy_amax;  // [1, S], as all that follow.
  Tensor<std::int32_t> x_exponent, dy_exponent;
  Tensor<float> x_scale, dy_scale;  // 2^-exponent
  // X itself is saved, or computed again: its codes are made again for the weight's gradient.
  bool again = false;
  // A product that is computed again makes them.
  bool product_again = false;
};

// Which rows of X and dY are whose: `row_document` of the pack, or where the experts' rows lie.
struct Fp8Rows {
  Tensor<std::int32_t> row_document;           // [1, R]
  Tensor<std::int32_t> start = {}, rows = {};  // [1, S]; absent: one segment.

  std::int64_t segments() const { return rows ? rows.cols : 1; }
};
// The rows of the experts' buffer in a slot, as make_saved() is told.
struct Fp8BufferRows {
  std::int64_t count;  // R
  Fp8Rows of;
  bool ragged, follows_the_data;  // Not padded; the host reads how many rows are in use.
  bool is_shown = true;  // Judges see these tensors, unless other ranks' rows are among them.
};

class Fp8Linear {
 public:
  // The weight must have codes.
  explicit Fp8Linear(const Parameter& weight) : weight_(weight) {}

  template <class T>
  Fp8Saved make_saved(SavedMaker& maker, const Recomputed<T>& recomputed) const {
    return make_saved(maker, recomputed, {maker.rows(), {}, false, false});
  }
  template <class T>
  Fp8Saved make_saved(SavedMaker& maker, const Recomputed<T>& recomputed,
                      const Fp8BufferRows& rows) const {
    const Fp8Layer layer = *weight_.fp8.layer;
    Fp8Saved saved = make(maker, rows, recomputed.codes_of(layer), recomputed.has_product(layer));
    if (const Tensor<std::uint32_t> words = recomputed.words_of_all_slots(weight_.index)) {
      saved.x_exponent.data = reinterpret_cast<std::int32_t*>(words.data);
      saved.x_scale.data = reinterpret_cast<float*>(words.data + words.cols);
    }
    return saved;
  }
  // As Linear::plan().
  void plan(Device& device, std::int64_t rows, Tensor<std::uint8_t> workspace) const;
  void forward(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x, Tensor<bf16> y,
               const Fp8Saved& saved, AmaxFrom from = AmaxFrom::operand) const;
  // Adds the weight's gradient to its accumulator, or writes it where there is none.
  void backward(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> dy, Tensor<bf16> x,
                Tensor<bf16> dx, const Fp8Saved& saved, AmaxFrom from = AmaxFrom::operand) const;

 private:
  // `again`: the memory of all slots for the codes of X; absent if each slot saves them.
  Fp8Saved make(SavedMaker& maker, const Fp8BufferRows& rows, Tensor<e4m3> again,
                bool product_again) const;
  void show(SavedMaker& maker, const Fp8BufferRows& rows, const Fp8Saved& saved) const;
  void cast_again(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
                  const Fp8Saved& saved) const;
  void weight_gradient(const PassContext& pass, const Fp8Rows& rows, const Fp8Saved& saved,
                       std::int64_t count, Tensor<e5m2> transposed) const;
  std::int64_t inputs() const { return weight_.weight.cols; }
  std::int64_t outputs() const { return weight_.weight.rows / weight_.fp8.experts; }

  const Parameter& weight_;
};

}  // namespace lockstep
