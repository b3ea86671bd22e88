#include "engine/cuda/launches/waiting_ops.h"

#include <utility>

#include "engine/cuda/launches/touched.h"
#include "kernels/cuda/pairs.h"

namespace lockstep {

bool WaitingOps::take(cudaStream_t stream, const Submission& op) {
  if (!joins_batch(op)) return false;
  std::vector<Touched> read, written;
  for (const Touched& one : touched_by(op.operands()))
    (one.is_written ? written : read).push_back(one);
  const bool fits = !ops_.empty() && stream == stream_ && op.type().id == ops_.front().type().id &&
                    ops_.size() < kMost && !meet(written, written_) && !meet(written, read_) &&
                    !meet(read, written_);
  if (!fits) launch();
  stream_ = stream;
  ops_.push_back(op);
  read_.insert(read_.end(), read.begin(), read.end());
  written_.insert(written_.end(), written.begin(), written.end());
  return true;
}

void WaitingOps::launch() {
  if (ops_.empty()) return;
  read_.clear();
  written_.clear();
  run_batch({stream_}, std::exchange(ops_, {}));
}

}  // namespace lockstep
