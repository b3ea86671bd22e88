#include "kernels/ops/scan.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/host/chain.h"
#include "kernels/host/rows.h"
#include "kernels/host/scan_chunk.h"

namespace lockstep {

template <class T>
static float time_step_bias(const ScanForward<T>& op, std::int64_t head) {
  return faulty("scan-forgets-dt-bias", op.dt_bias.data[head], 0.0f);
}

// Chunks in the order of the table: documents asc, each from its first row. states[c] is the state
// at the start of chunk c; a document starts from +0.
template <class T>
void run(HostQueue, const ScanForward<T>& op) {
  const ScanShape s = scan_shape(op);
  for (std::int64_t i = 0; i < op.y.rows; ++i) {
    if (op.row_document.data[i] < 0) store_zero(op.y.cols, op.y.row(i));
  }
  GroupChunk<T> group(s);
  HeadChunk<T> head(s);
  const std::int64_t chunks = op.chunk_document.cols;
  bool continued = false;  // The chunk before was of the same document.
  for (std::int64_t c = 0; c < chunks && op.chunk_document.data[c] >= 0; ++c) {
    const std::int64_t document = op.chunk_document.data[c], first = op.chunk_start.data[c];
    const std::int64_t rows = op.chunk_rows.data[c];
    const std::int64_t next = c + 1 < chunks ? op.chunk_document.data[c + 1] : -1;
    const bool continues = faulty("scan-keeps-state-across-documents", next == document, next >= 0);
    const bool carried = faulty("scan-drops-state-between-chunks", continued, false);
    if (!carried) set_zero(op.states.cols, op.states.row(c));
    continued = continues;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      if (h % (s.heads / s.groups) == 0) group.load(s, op.xbc, s.group_of(h), first, rows);
      const float* state = op.states.row(c) + h * s.state_size();
      head.load(s, op.xbc, op.dt, h, time_step_bias(op, h), op.a_log.data[h], group, first, rows);
      head.outputs(s, group, state, rows);
      for (std::int64_t i = 0; i < rows; ++i) {
        T* y = op.y.row(first + i) + h * s.p;
        for (std::int64_t p = 0; p < s.p; ++p) {
          y[p] = st<T>(fma(op.d.data[h], head.x[i * s.p + p], head.y[i * s.p + p]));
        }
      }
      if (continues) head.advance(s, group, state, rows, op.states.row(c + 1) + h * s.state_size());
    }
  }
}

template void run(HostQueue, const ScanForward<float>&);
template void run(HostQueue, const ScanForward<bf16>&);

}  // namespace lockstep
