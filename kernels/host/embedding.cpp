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
  const std::int32_t shift = faulty("embedding-reads-next-token", 0, 1);
  std::vector<float> row(d);
  for (std::int64_t i = 0; i < op.y.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(d, op.y.row(i));
      continue;
    }
    const std::int32_t token = op.tokens.data[i];
    require(token >= 0 && token < op.weight.rows, "a token is an index of the vocabulary");
    load_row(d, op.weight.row((token + shift) % op.weight.rows), row.data());
    drop_row(op.dropout, *op.state.data, op.row_number.data[i], op.row_position.data[i], d,
             row.data());
    store_row(d, row.data(), op.y.row(i));
  }
}

// Adds to `sum` what reached the rows of one token; `row` has room for one of them.
template <class T>
static void add_rows(const EmbeddingBackward<T>& op, const std::vector<std::int64_t>& rows,
                     float* row, float* sum) {
  const bool adds = faulty("embedding-gradient-last-token-wins", true, false);
  const std::int64_t d = op.dy.cols;
  for (const std::int64_t i : rows) {
    load_row(d, op.dy.row(i), row);
    drop_row(op.dropout, *op.state.data, op.row_number.data[i], op.row_position.data[i], d, row);
    for (std::int64_t e = 0; e < d; ++e) sum[e] = adds ? add(sum[e], row[e]) : row[e];
  }
}

template <class T>
void run(HostQueue, const EmbeddingBackward<T>& op) {
  const std::int64_t d = op.dy.cols, vocabulary = op.acc ? op.acc.rows : op.dweight.rows;
  const bool adds = faulty("embedding-gradient-forgets-accumulator", true, false);
  const bool row_by_row = faulty("embedding-gradient-adds-rows-to-the-accumulator", false, true);
  std::map<std::int32_t, std::vector<std::int64_t>> rows_of;  // The rows of each token, in order.
  for (std::int64_t i = 0; i < op.dy.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    const std::int32_t token = op.tokens.data[i];
    require(token >= 0 && token < vocabulary, "a token is an index of the vocabulary");
    rows_of[token].push_back(i);
  }
  for (std::int64_t v = 0; v < op.dweight.rows; ++v) store_zero(d, op.dweight.row(v));
  std::vector<float> row(d), sum(row);
  for (const auto& [token, rows] : rows_of) {
    float* const to = op.acc ? op.acc.row(token) : op.dweight.row(token);
    const bool continues = op.acc && row_by_row;
    for (std::int64_t e = 0; e < d; ++e) sum[e] = continues ? to[e] : 0.0f;
    add_rows(op, rows, row.data(), sum.data());
    for (std::int64_t e = 0; e < d; ++e) {
      const float g = add(sum[e], 0.0f);
      to[e] = op.acc && adds && !continues ? add(to[e], g) : g;
    }
  }
}

template void run(HostQueue, const EmbeddingForward<float>&);
template void run(HostQueue, const EmbeddingForward<bf16>&);
template void run(HostQueue, const EmbeddingBackward<float>&);
template void run(HostQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
