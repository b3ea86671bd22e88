// The forward and backward pass, layer by layer over the rows of a microbatch.
#pragma once

#include "oracle/model/layers.h"
#include "oracle/ops/cross_entropy.h"
#include "oracle/ops/embedding.h"
#include "oracle/ops/residual.h"

namespace lockstep::oracle {

template <class Precision>
class ReferenceModel {
  using Real = typename Precision::Real;

 public:
  ReferenceModel(Pass<Precision> pass, const DropoutKey& dropout)
      : pass_(pass), dropout_(dropout) {}

  // Returns the loss. With `train` the gradient of the logits is kept for the backward pass.
  Real forward(Real inv_n, bool train) {
    const std::int64_t rows = pass_.pack.rows, d = pass_.model.hidden;
    stream_.push_back(&embed());
    for (int layer = 0; layer < layers(); ++layer) {
      const std::size_t place = 1 + layer;
      Matrix<Real>& x = normed(place, "norm", layer_gain(layer));
      Layer<Precision>(pass_, layer).forward(x);
      Matrix<Real>& out = pass_.saved.make(place, "out", rows, d);
      residual<Precision>(pass_.pack, dropout_, site(layer), *stream_.back(),
                          pass_.saved.get(place, "proj"), out, pass_.mutant);
      wrote("residual_forward.out", layer, out);
      stream_.push_back(&out);
    }
    const std::size_t last = pass_.saved.last();
    Matrix<Real>& x = normed(last, "final_norm", pass_.layout.final_gain);
    Matrix<Real>& logits = pass_.saved.make(last, "logits", rows, pass_.model.vocab);
    linear<Precision>(pass_.pack, x, weight(pass_.layout.head), logits, pass_.mutant);
    if constexpr (Precision::kFp8) {
      if (pass_.mutant("fp8-head-multiplies-codes"))
        multiply_codes(x, weight(pass_.layout.head), logits);
    }
    wrote("linear_forward.y", -1, logits);
    Matrix<Real>& losses = pass_.saved.make(last, "token_loss", 1, rows);
    if (train) dlogits_ = Matrix<Real>(rows, pass_.model.vocab);
    const Real loss = cross_entropy<Precision>(pass_.pack, logits, inv_n, losses,
                                               train ? &dlogits_ : nullptr, pass_.mutant);
    wrote("cross_entropy_forward.loss", -1, losses);
    note_written<Real>(pass_.written, "microbatch_loss.total", -1, 1, {loss});
    return loss;
  }

  // Computes the microbatch's gradients.
  void backward() {
    const int head = pass_.layout.head;
    wrote("cross_entropy_backward.dlogits", -1, dlogits_);
    const Matrix<Real>& x = pass_.saved.get(pass_.saved.last(), "final_norm.out");
    std::vector<Real> head_gradient =
        linear_weight_gradient<Precision>(pass_.pack, dlogits_, x, pass_.mutant);
    const Matrix<Real> dx = linear_input_gradient<Precision>(pass_.pack, dlogits_, weight(head),
                                                             pass_.model.hidden, pass_.mutant);
    note_written(pass_.written, "linear_weight_gradient.dw", -1, pass_.model.vocab, head_gradient);
    wrote("linear_input_gradient.dx", -1, dx);
    Matrix<Real> dr =
        norm_backward(pass_.saved.last(), "final_norm", layers(), pass_.layout.final_gain, dx);
    store<Precision>(dr.values.data(), static_cast<std::int64_t>(dr.values.size()));
    wrote("rms_norm_backward.dx", -1, dr);
    for (int layer = layers() - 1; layer >= 0; --layer) {
      const std::size_t place = 1 + layer;
      const Matrix<Real> dy =
          branch_gradient<Precision>(pass_.pack, dropout_, site(layer), dr, pass_.mutant);
      wrote("residual_backward.dy", layer, dy);
      const Matrix<Real> d_norm =
          Layer<Precision>(pass_, layer).backward(pass_.saved.get(place, "norm.out"), dy);
      add_to_residual_gradient<Precision>(
          pass_.pack, dr, norm_backward(place, "norm", layer, layer_gain(layer), d_norm),
          pass_.mutant);
      wrote("rms_norm_backward.dx", layer, dr);
    }
    const Matrix<Real> d_embedding =
        dropped_gradient(pass_.pack, dropout_, kEmbeddingSite, dr, pass_.mutant);
    pass_.gradients[0] =
        embedding_gradient(pass_.pack, d_embedding, pass_.model.vocab, pass_.mutant);
    note_written(pass_.written, "embedding_backward.dweight", -1, pass_.model.vocab,
                 pass_.gradients[0]);
    if (head != 0) {
      pass_.gradients[head] = std::move(head_gradient);
    } else {
      tie(head_gradient, pass_.gradients[0]);
    }
  }

 private:
  static constexpr DropoutPlace kEmbeddingSite{0, Site::embedding};

  static DropoutPlace site(int layer) { return {static_cast<std::uint32_t>(layer), Site::mixer}; }
  // The layer of a place of Saved, -1 outside of layers.
  int layer_of(std::size_t place) const {
    return place == pass_.saved.last() ? -1 : static_cast<int>(place) - 1;
  }
  void wrote(const char* name, int layer, const Matrix<Real>& values) const {
    note_written(pass_.written, name, layer, values);
  }
  int layers() const { return static_cast<int>(pass_.model.pattern.size()); }
  int layer_gain(int layer) const { return pass_.layout.first[layer]; }
  const Real* weight(int parameter) const { return pass_.weights[parameter].data(); }

  Matrix<Real>& embed() {
    const std::int64_t rows = pass_.pack.rows, d = pass_.model.hidden;
    Matrix<Real>& out = pass_.saved.make(0, "embedding.out", rows, d);
    out = dropped(pass_.pack, dropout_, kEmbeddingSite,
                  embedding_rows(pass_.pack, weight(0), d, pass_.mutant), pass_.mutant);
    store<Precision>(out.values.data(), static_cast<std::int64_t>(out.values.size()));
    wrote("embedding_forward.y", -1, out);
    return out;
  }

  Matrix<Real>& normed(std::size_t place, const std::string& name, int gain) {
    const std::int64_t rows = pass_.pack.rows;
    Matrix<Real>& y = pass_.saved.make(place, name + ".out", rows, pass_.model.hidden);
    Matrix<Real>& rstd = pass_.saved.make(place, name + ".rstd", 1, rows);
    const Real eps = static_cast<Real>(pass_.model.norm_eps);
    rms_norm<Precision>(pass_.pack, *stream_.back(), weight(gain), eps, y, rstd, pass_.mutant);
    wrote("rms_norm_forward.y", layer_of(place), y);
    wrote("rms_norm_forward.rstd", layer_of(place), rstd);
    return y;
  }

  Matrix<Real> norm_backward(std::size_t place, const std::string& name, int input, int gain,
                             const Matrix<Real>& dy) {
    Matrix<Real> dx = rms_norm_gradient<Precision>(
        pass_.pack, *stream_[input], pass_.saved.get(place, name + ".rstd"), weight(gain), dy,
        pass_.gradients[gain], pass_.mutant);
    note_written(pass_.written, "rms_norm_backward.dgain", layer_of(place), 1,
                 pass_.gradients[gain]);
    return dx;
  }

  // Used by the planted error of the head alone.
  void multiply_codes(const Matrix<Real>& x, const Real* w, Matrix<Real>& y) const {
    const int of_x = fp8_exponent(amax_of(pass_.pack, x), kE4m3);
    const int of_w = fp8_exponent(amax_of(w, y.cols * x.cols), kE4m3);
    fp8_linear(quantised(pass_.pack, x, of_x, kE4m3), quantised(w, y.cols, x.cols, of_w), y);
  }
  void tie(const std::vector<Real>& head, std::vector<Real>& embedding) {
    const bool lost = pass_.mutant("tied-gradient-forgets-the-embedding");
    for (std::size_t e = 0; e < head.size(); ++e)
      embedding[e] = lost ? head[e] : add(head[e], embedding[e]);
  }

  Pass<Precision> pass_;
  DropoutKey dropout_;
  std::vector<Matrix<Real>*> stream_;  // The residual stream before each layer and after the last.
  Matrix<Real> dlogits_;
};

}  // namespace lockstep::oracle
