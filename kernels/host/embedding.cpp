#include "kernels/ops/embedding.h"

#include <map>
#include <vector>

#include "kernels/core/require.h"
#include "kernels/host/dropout.h"
#include "kernels/host/rows.h"

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
  const std::int64_t d = op.dy.cols, vocabulary = op.acc ? op.acc.rows : op.dweight.rows;
  const DropoutFaults faults;
  const bool last_wins = fault("embedding-gradient-last-token-wins");
  const bool overwrites = fault("embedding-gradient-forgets-accumulator");
  const bool row_by_row = fault("embedding-gradient-adds-rows-to-the-accumulator");
  std::map<std::int32_t, std::vector<std::int64_t>> rows_of;  // Of each token, in order.
  for (std::int64_t i = 0; i < op.dy.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    const std::int32_t token = op.tokens.data[i];
    require(token >= 0 && token < vocabulary, "a token is an index of the vocabulary");
    rows_of[token].push_back(i);
  }
  for (std::int64_t v = 0; v < op.dweight.rows; ++v) store_zero(d, op.dweight.row(v));
  std::vector<float> row(static_cast<std::size_t>(d)), sum(row);
  for (const auto& [token, rows] : rows_of) {
    float* const to = op.acc ? op.acc.row(token) : op.dweight.row(token);
    const bool continues = op.acc && row_by_row;
    for (std::int64_t e = 0; e < d; ++e) sum[e] = continues ? to[e] : 0.0f;
    for (const std::int64_t i : rows) {
      load_row(d, op.dy.row(i), row.data());
      drop_row(op.dropout, *op.state.data, faults, op.row_number.data[i], op.row_position.data[i], d, row.data());
      for (std::int64_t e = 0; e < d; ++e) sum[e] = last_wins ? row[e] : add(sum[e], row[e]);
    }
    for (std::int64_t e = 0; e < d; ++e) {
      const float g = add(sum[e], 0.0f);
      to[e] = op.acc && !overwrites && !continues ? add(to[e], g) : g;
    }
  }
}

template void run(HostQueue, const EmbeddingForward<float>&);
template void run(HostQueue, const EmbeddingForward<bf16>&);
template void run(HostQueue, const EmbeddingBackward<float>&);
template void run(HostQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
