#include "kernels/embedding.h"

#include <vector>

#include "kernels/host/dropout.h"
#include "kernels/host/rows.h"
#include "kernels/require.h"

namespace lockstep {

template <class T>
void run(HostQueue, const EmbeddingForward<T>& op) {
  const std::int64_t d = op.y.cols;
  const DropoutFaults faults;
  const bool shifts = fault("embedding-reads-next-token");
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < op.y.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(d, op.y.row(i));
      continue;
    }
    std::int32_t token = op.tokens.data[i];
    require(token >= 0 && token < op.weight.rows, "a token is an index of the vocabulary");
    if (shifts) token = static_cast<std::int32_t>((token + 1) % op.weight.rows);
    load_row(d, op.weight.row(token), row.data());
    drop_row(op.dropout, *op.state.data, faults, op.row_number.data[i], op.row_position.data[i], d, row.data());
    store_row(d, row.data(), op.y.row(i));
  }
}

template <class T>
void run(HostQueue, const EmbeddingBackward<T>& op) {
  const std::int64_t d = op.dy.cols;
  const DropoutFaults faults;
  const bool last_wins = fault("embedding-gradient-last-token-wins");
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t v = 0; v < op.dweight.rows; ++v) store_zero(d, op.dweight.row(v));
  for (std::int64_t i = 0; i < op.dy.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    const std::int32_t token = op.tokens.data[i];
    require(token >= 0 && token < op.dweight.rows, "a token is an index of the vocabulary");
    load_row(d, op.dy.row(i), row.data());
    drop_row(op.dropout, *op.state.data, faults, op.row_number.data[i], op.row_position.data[i], d, row.data());
    float* to = op.dweight.row(token);
    for (std::int64_t e = 0; e < d; ++e) to[e] = last_wins ? row[e] : add(to[e], row[e]);
  }
  for (std::int64_t v = 0; v < op.dweight.rows; ++v) {
    float* to = op.dweight.row(v);
    for (std::int64_t e = 0; e < d; ++e) to[e] = add(to[e], 0.0f);
  }
}

template void run(HostQueue, const EmbeddingForward<float>&);
template void run(HostQueue, const EmbeddingForward<bf16>&);
template void run(HostQueue, const EmbeddingBackward<float>&);
template void run(HostQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
