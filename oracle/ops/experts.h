// The experts' products (arithmetic.md 2.4 and 2.10): each expert is an MLP over its own rows of
// the buffer.
#pragma once

#include "oracle/ops/activation.h"
#include "oracle/ops/dispatch.h"

namespace lockstep::oracle {

// The stacked weights of all experts.
template <class Real>
struct ExpertWeights {
  const Real *fc1, *fc2;         // [E * wide, d], [E * d, hidden]
  std::int64_t d, wide, hidden;  // wide: outputs of the first product.
};

// The pack that one expert sees: its rows as a microbatch of one document.
inline PackedBatch own_rows(std::int64_t rows) {
  PackedBatch pack;
  pack.rows = rows;
  pack.documents = pack.runs = {{0, rows, 0}};
  return pack;
}

template <class Real>
Matrix<Real> rows_of(const Matrix<Real>& from, std::int64_t first, std::int64_t rows) {
  Matrix<Real> part(rows, from.cols);
  std::copy_n(from.row(first), rows * from.cols, part.values.data());
  return part;
}
template <class Real>
void put_rows(const Matrix<Real>& part, std::int64_t first, Matrix<Real>& to) {
  std::copy(part.values.begin(), part.values.end(), to.row(first));
}

// Returns the gradient of one expert's weight. The sum and its groups of 16 rows start at the
// expert's first row.
template <class Precision, class Real = typename Precision::Real>
std::vector<Real> expert_weight_gradient(const Dispatch& dispatch, std::size_t expert,
                                         const Matrix<Real>& dy, const Matrix<Real>& x,
                                         Mutant mutant) {
  const std::int64_t rows = dispatch.rows[expert];
  if (!mutant("moe-groups-of-rows-count-from-the-buffer")) {
    return linear_weight_gradient<Precision>(own_rows(rows), dy, x, mutant);
  }
  const std::int64_t before = dispatch.first[expert] % 16;
  Matrix<Real> late_dy(before + rows, dy.cols), late_x(before + rows, x.cols);
  put_rows(dy, before, late_dy);
  put_rows(x, before, late_x);
  return linear_weight_gradient<Precision>(own_rows(before + rows), late_dy, late_x, mutant);
}

enum class ExpertProduct : bool { fc1, fc2 };

// The weight of one expert, [out, in].
template <class Real>
const Real* expert_weight(const ExpertWeights<Real>& weights, ExpertProduct which, std::size_t e) {
  return which == ExpertProduct::fc1 ? weights.fc1 + e * weights.wide * weights.d
                                     : weights.fc2 + e * weights.d * weights.hidden;
}

// The products of the experts by arithmetic.md 2.4. fp8 numerics has its own, with the same calls.
template <class Precision, class Real = typename Precision::Real>
struct PlainExpertProducts {
  const Dispatch& dispatch;
  const ExpertWeights<Real>& weights;
  Mutant mutant;

  void forward(ExpertProduct which, std::size_t e, const PackedBatch& pack, const Matrix<Real>& x,
               Matrix<Real>& y) const {
    linear<Precision>(pack, x, expert_weight(weights, which, e), y, mutant);
  }
  // Returns dX and sets dW.
  Matrix<Real> backward(ExpertProduct which, std::size_t e, const PackedBatch& pack,
                        const Matrix<Real>& x, const Matrix<Real>& dy,
                        std::vector<Real>& dw) const {
    dw = expert_weight_gradient<Precision>(dispatch, e, dy, x, mutant);
    return linear_input_gradient<Precision>(pack, dy, expert_weight(weights, which, e), x.cols,
                                            mutant);
  }
};

// Fills fc1, act and out, which have the buffer's rows. Rows that no expert takes stay +0.
template <class Precision, class Products, class Real = typename Precision::Real>
void experts(const Dispatch& dispatch, MlpActivation kind, const Products& products,
             const Matrix<Real>& x, Matrix<Real>& fc1, Matrix<Real>& act, Matrix<Real>& out,
             Mutant mutant) {
  for (std::size_t e = 0; e < dispatch.rows.size(); ++e) {
    const std::int64_t first = dispatch.first[e], rows = dispatch.rows[e];
    const PackedBatch pack = own_rows(rows);
    Matrix<Real> h(rows, fc1.cols), a(rows, act.cols), y(rows, out.cols);
    products.forward(ExpertProduct::fc1, e, pack, rows_of(x, first, rows), h);
    activation<Precision>(pack, kind, h, a, mutant);
    products.forward(ExpertProduct::fc2, e, pack, a, y);
    put_rows(h, first, fc1);
    put_rows(a, first, act);
    put_rows(y, first, out);
  }
}

// Returns the gradient of the buffer's inputs from that of its outputs, and appends to the
// gradients of the stacked weights. Fills the gradients of act and fc1.
template <class Precision, class Products, class Real = typename Precision::Real>
Matrix<Real> experts_gradient(const Dispatch& dispatch, MlpActivation kind,
                              const Products& products, const Matrix<Real>& x,
                              const Matrix<Real>& fc1, const Matrix<Real>& act,
                              const Matrix<Real>& d_out, Matrix<Real>& d_act, Matrix<Real>& d_h,
                              std::vector<Real>& d_fc1, std::vector<Real>& d_fc2, Mutant mutant) {
  Matrix<Real> dx(x.rows, x.cols);
  for (std::size_t e = 0; e < dispatch.rows.size(); ++e) {
    const std::int64_t first = dispatch.first[e], rows = dispatch.rows[e];
    const PackedBatch pack = own_rows(rows);
    const Matrix<Real> dy = rows_of(d_out, first, rows), a = rows_of(act, first, rows);
    std::vector<Real> dw1, dw2;
    const Matrix<Real> da = products.backward(ExpertProduct::fc2, e, pack, a, dy, dw2);
    const Matrix<Real> dh =
        activation_gradient<Precision>(pack, kind, rows_of(fc1, first, rows), da, mutant);
    put_rows(da, first, d_act);
    put_rows(dh, first, d_h);
    put_rows(products.backward(ExpertProduct::fc1, e, pack, rows_of(x, first, rows), dh, dw1),
             first, dx);
    d_fc1.insert(d_fc1.end(), dw1.begin(), dw1.end());
    d_fc2.insert(d_fc2.end(), dw2.begin(), dw2.end());
  }
  return dx;
}

}  // namespace lockstep::oracle
