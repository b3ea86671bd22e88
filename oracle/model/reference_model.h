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
      stream_.push_back(&out);
    }
    const std::size_t last = pass_.saved.last();
    Matrix<Real>& x = normed(last, "final_norm", pass_.layout.final_gain);
    Matrix<Real>& logits = pass_.saved.make(last, "logits", rows, pass_.model.vocab);
    linear<Precision>(pass_.pack, x, weight(pass_.layout.head), logits, pass_.mutant);
    Matrix<Real>& losses = pass_.saved.make(last, "token_loss", 1, rows);
    if (train) dlogits_ = Matrix<Real>(rows, pass_.model.vocab);
    return cross_entropy<Precision>(pass_.pack, logits, inv_n, losses, train ? &dlogits_ : nullptr,
                                    pass_.mutant);
  }

  // Computes the microbatch's gradients.
  void backward() {
    const int head = pass_.layout.head;
    const Matrix<Real>& x = pass_.saved.get(pass_.saved.last(), "final_norm.out");
    std::vector<Real> head_gradient =
        linear_weight_gradient<Precision>(pass_.pack, dlogits_, x, pass_.mutant);
    const Matrix<Real> dx = linear_input_gradient<Precision>(pass_.pack, dlogits_, weight(head),
                                                             pass_.model.hidden, pass_.mutant);
    Matrix<Real> dr =
        norm_backward(pass_.saved.last(), "final_norm", layers(), pass_.layout.final_gain, dx);
    store<Precision>(dr.values.data(), static_cast<std::int64_t>(dr.values.size()));
    for (int layer = layers() - 1; layer >= 0; --layer) {
      const std::size_t place = 1 + layer;
      const Matrix<Real> dy =
          branch_gradient<Precision>(pass_.pack, dropout_, site(layer), dr, pass_.mutant);
      const Matrix<Real> d_norm =
          Layer<Precision>(pass_, layer).backward(pass_.saved.get(place, "norm.out"), dy);
      add_to_residual_gradient<Precision>(
          pass_.pack, dr, norm_backward(place, "norm", layer, layer_gain(layer), d_norm),
          pass_.mutant);
    }
    const Matrix<Real> d_embedding =
        dropped_gradient(pass_.pack, dropout_, kEmbeddingSite, dr, pass_.mutant);
    pass_.gradients[0] =
        embedding_gradient(pass_.pack, d_embedding, pass_.model.vocab, pass_.mutant);
    if (head != 0) {
      pass_.gradients[head] = std::move(head_gradient);
    } else {
      tie(head_gradient, pass_.gradients[0]);
    }
  }

 private:
  static constexpr DropoutPlace kEmbeddingSite{0, Site::embedding};

  static DropoutPlace site(int layer) { return {static_cast<std::uint32_t>(layer), Site::mixer}; }
  int layers() const { return static_cast<int>(pass_.model.pattern.size()); }
  int layer_gain(int layer) const { return pass_.layout.first[layer]; }
  const Real* weight(int parameter) const { return pass_.weights[parameter].data(); }

  Matrix<Real>& embed() {
    const std::int64_t rows = pass_.pack.rows, d = pass_.model.hidden;
    Matrix<Real>& out = pass_.saved.make(0, "embedding.out", rows, d);
    out = dropped(pass_.pack, dropout_, kEmbeddingSite,
                  embedding_rows(pass_.pack, weight(0), d, pass_.mutant), pass_.mutant);
    store<Precision>(out.values.data(), static_cast<std::int64_t>(out.values.size()));
    return out;
  }

  Matrix<Real>& normed(std::size_t place, const std::string& name, int gain) {
    const std::int64_t rows = pass_.pack.rows;
    Matrix<Real>& y = pass_.saved.make(place, name + ".out", rows, pass_.model.hidden);
    Matrix<Real>& rstd = pass_.saved.make(place, name + ".rstd", 1, rows);
    const Real eps = static_cast<Real>(pass_.model.norm_eps);
    rms_norm<Precision>(pass_.pack, *stream_.back(), weight(gain), eps, y, rstd, pass_.mutant);
    return y;
  }

  Matrix<Real> norm_backward(std::size_t place, const std::string& name, int input, int gain,
                             const Matrix<Real>& dy) {
    return rms_norm_gradient<Precision>(pass_.pack, *stream_[input],
                                        pass_.saved.get(place, name + ".rstd"), weight(gain), dy,
                                        pass_.gradients[gain], pass_.mutant);
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
