#include "kernels/ops/scan.h"

#include <algorithm>

#include "kernels/host/chain.h"
#include "kernels/host/rows.h"
#include "kernels/host/scan_chunk.h"

namespace lockstep {

// Chunks in the order of the table: documents asc, each from its first row. states[c] is the state at the start of
// chunk c; a document starts from +0.
template <class T>
void run(HostQueue, const ScanForward<T>& op) {
  const ScanShape s = scan_shape(op);
  const ScanFaults faults;
  for (std::int64_t i = 0; i < op.y.rows; ++i) {
    if (op.row_document.data[i] < 0) store_zero(op.y.cols, op.y.row(i));
  }
  GroupChunk<T> group(s);
  HeadChunk<T> head(s);
  const std::int64_t chunks = op.chunk_document.cols;
  for (std::int64_t c = 0; c < chunks && op.chunk_document.data[c] >= 0; ++c) {
    const std::int64_t document = op.chunk_document.data[c], first = op.chunk_start.data[c];
    const std::int64_t rows = op.chunk_rows.data[c];
    const bool starts = first == op.document_start.data[document];
    const bool continues = c + 1 < chunks && (op.chunk_document.data[c + 1] == document ||
                                              (faults.keeps_state && op.chunk_document.data[c + 1] >= 0));
    if (faults.forgets_state || c == 0 || (starts && !faults.keeps_state)) set_zero(op.states.cols, op.states.row(c));
    for (std::int64_t h = 0; h < s.heads; ++h) {
      if (h % (s.heads / s.groups) == 0) group.load(s, op.xbc, s.group_of(h), first, rows);
      const float* state = op.states.row(c) + h * s.state_size();
      head.load(s, op.xbc, op.dt, h, faults.forgets_bias ? 0.0f : op.dt_bias.data[h], op.a_log.data[h], group, first,
                rows);
      head.outputs(s, group, state, rows);
      for (std::int64_t i = 0; i < rows; ++i) {
        T* y = op.y.row(first + i) + h * s.p;
        for (std::int64_t p = 0; p < s.p; ++p) {
          y[p] = st<T>(fma(op.d.data[h], head.x[i * s.p + p], head.y[i * s.p + p]));
        }
      }
      if (continues) head.advance(s, group, state, rows, op.states.row(c + 1) + h * s.state_size(), faults);
    }
  }
}

template void run(HostQueue, const ScanForward<float>&);
template void run(HostQueue, const ScanForward<bf16>&);

}  // namespace lockstep
