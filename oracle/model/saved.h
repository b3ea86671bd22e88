// The tensors that a forward pass stores, in program order, with the names of docs/tensors.md.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/arithmetic/matrix.h"

namespace lockstep::oracle {

template <class Real>
struct NamedMatrix {
  std::string name;  // Without the layer.
  Matrix<Real> matrix;
};

// A place is 0 for the embedding, 1 + i for layer i, layers + 1 for what follows the last layer.
template <class Real>
class Saved {
 public:
  explicit Saved(std::size_t layers) : places_(layers + 2) {}

  // The returned tensor keeps its address when others are made.
  Matrix<Real>& make(std::size_t place, std::string_view name, std::int64_t rows,
                     std::int64_t cols) {
    return places_[place]
        .emplace_back(NamedMatrix<Real>{std::string(name), Matrix<Real>(rows, cols)})
        .matrix;
  }
  const Matrix<Real>& get(std::size_t place, std::string_view name) const {
    for (const NamedMatrix<Real>& entry : places_[place]) {
      if (entry.name == name) return entry.matrix;
    }
    throw std::logic_error("nothing was saved as " + std::string(name));
  }
  std::vector<std::deque<NamedMatrix<Real>>>& places() { return places_; }
  std::size_t last() const { return places_.size() - 1; }

 private:
  std::vector<std::deque<NamedMatrix<Real>>> places_;
};

}  // namespace lockstep::oracle
