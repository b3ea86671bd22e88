#include "harness/bench/work.h"

#include <algorithm>

#include "kernels/core/contract.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/scan.h"

namespace lockstep {
namespace {

template <class Op>
const Op* as(const Submission& submission) {
  return submission.as<Op>();
}

double product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

template <class T>
double product_flop(const Submission& submission) {
  if (const auto* op = as<LinearForward<T>>(submission))
    return product(op->x.rows, op->w.rows, op->x.cols);
  if (const auto* op = as<LinearInputGradient<T>>(submission))
    return product(op->dy.rows, op->w.cols, op->w.rows);
  if (const auto* op = as<LinearWeightGradient<T>>(submission))
    return product(op->dy.cols, op->x.cols, op->x.rows);
  return 0;
}

double fp8_product_flop(const Submission& submission) {
  if (const auto* op = as<Fp8LinearForward>(submission))
    return product(op->y.rows, op->y.cols, op->x.cols);
  if (const auto* op = as<Fp8LinearInputGradient>(submission))
    return product(op->dx.rows, op->dx.cols, op->dy.cols);
  if (const auto* op = as<Fp8LinearWeightGradient>(submission))
    return product(op->dy.rows, op->x.rows, op->x.cols);
  return 0;
}

// Forward two products a causal pair, backward five.
double cudnn_flop(const Submission& submission, double pairs) {
  if (const auto* op = as<CudnnAttentionForward>(submission))
    return 4.0 * op->heads * op->head_dim * pairs;
  if (const auto* op = as<CudnnAttentionBackward>(submission))
    return 10.0 * op->heads * op->head_dim * pairs;
  return 0;
}
template <class T>
double attention_flop(const Submission& submission, double pairs) {
  if (const auto* op = as<AttentionForward<T>>(submission))
    return 4.0 * op->heads * op->head_dim * pairs;
  if (const auto* op = as<AttentionBackward<T>>(submission))
    return 10.0 * op->heads * op->head_dim * pairs;
  return 0;
}

// Seven operations a state element and token, as published figures count them; the backward pass
// twice that.
template <class T>
double scan_flop(const Submission& submission) {
  const auto elements = [](const auto& op, std::int64_t inner) {
    return 7.0 * static_cast<double>(op.state) * static_cast<double>(inner) *
           static_cast<double>(op.xbc.rows);
  };
  if (const auto* op = as<ScanForward<T>>(submission)) return elements(*op, op->y.cols);
  if (const auto* op = as<ScanBackward<T>>(submission)) return 2 * elements(*op, op->dy.cols);
  return 0;
}

// Rows of the vocabulary that an embedding reads or adds to: those of the pack's tokens.
template <class T>
std::int64_t rows_in_use(const Submission& submission, const OperandBytes& operand,
                         const PackWork& pack) {
  const auto* forward = as<EmbeddingForward<T>>(submission);
  const auto* backward = as<EmbeddingBackward<T>>(submission);
  const bool by_token = (forward != nullptr && operand.base == forward->weight.data) ||
                        (backward != nullptr && operand.base == backward->acc.data);
  return by_token ? pack.tokens : operand.rows;
}

}  // namespace

OpWork work_of(const Submission& op, const PackWork& pack) {
  OpWork work;
  for (const OperandBytes& operand : op.operands()) {
    const std::int64_t rows =
        std::min(rows_in_use<bf16>(op, operand, pack), rows_in_use<float>(op, operand, pack));
    const double bytes = static_cast<double>(rows) * static_cast<double>(operand.row_bytes);
    if (operand.access != Access::scratch)
      work.bytes += operand.access == Access::accum ? 2 * bytes : bytes;
  }
  const double causal_pairs = pack.causal_pairs;
  const auto found = [&](Bound bound, double flop) {
    if (flop > 0) work = {bound, flop, work.bytes};
  };
  found(Bound::product, product_flop<bf16>(op) + product_flop<float>(op) + fp8_product_flop(op));
  found(Bound::attention,
        attention_flop<bf16>(op, causal_pairs) + attention_flop<float>(op, causal_pairs));
  found(Bound::attention, cudnn_flop(op, causal_pairs));
  found(Bound::scan, scan_flop<bf16>(op) + scan_flop<float>(op));
  return work;
}

std::string signature(const Submission& op) {
  std::string text = op.type().name;
  int shown = 0;
  for (const OperandBytes& operand : op.operands()) {
    if (operand.rows == 1 && shown > 0) continue;  // Vectors follow from the rest.
    if (++shown > 3) break;
    text += " " + std::to_string(operand.rows) + "x" + std::to_string(operand.row_bytes) + "B";
  }
  return text;
}

}  // namespace lockstep
