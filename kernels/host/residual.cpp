#include "kernels/ops/residual.h"

#include <vector>

#include "kernels/host/dropout.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {

template <class T>
void run(HostQueue, const ResidualForward<T>& op) {
  const std::int64_t d = op.out.cols;
  std::vector<float> row(d);
  for (std::int64_t i = 0; i < op.out.rows; ++i) {
    T* out = op.out.row(i);
    if (op.row_document.data[i] < 0) {
      store_zero(d, out);
      continue;
    }
    load_row(d, op.y.row(i), row.data());
    drop_row(op.dropout, *op.state.data, op.row_number.data[i], op.row_position.data[i], d,
             row.data());
    row.back() = faulty("residual-forgets-last-channel", row.back(), 0.0f);
    const T* residual = op.residual.row(i);
    for (std::int64_t e = 0; e < d; ++e) out[e] = st<T>(add(load(residual[e]), row[e]));
  }
}

template <class T>
void run(HostQueue, const ResidualBackward<T>& op) {
  const std::int64_t d = op.dy.cols;
  Dropout dropout = op.dropout;
  dropout.active = faulty("residual-backward-forgets-dropout-mask", op.dropout.active, false);
  std::vector<float> row(d);
  for (std::int64_t i = 0; i < op.dy.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(d, op.dy.row(i));
      continue;
    }
    load_row(d, op.dout.row(i), row.data());
    const float doubled = mul(op.row_position.data[i] == 0 ? 2.0f : 1.0f, op.dropout.scale);
    dropout.scale = faulty("residual-backward-doubles-first-row", op.dropout.scale, doubled);
    drop_row(dropout, *op.state.data, op.row_number.data[i], op.row_position.data[i], d,
             row.data());
    store_row(d, row.data(), op.dy.row(i));
  }
  raise_amax(op, op.dy);
}

template void run(HostQueue, const ResidualForward<float>&);
template void run(HostQueue, const ResidualForward<bf16>&);
template void run(HostQueue, const ResidualBackward<float>&);
template void run(HostQueue, const ResidualBackward<bf16>&);

}  // namespace lockstep
