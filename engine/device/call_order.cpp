#include "engine/device/call_order.h"

#include <utility>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {

void CallOrder::begin(const Stream& stream) {
  const int recording = device_.recording();
  if (recording >= 0 && recording != std::exchange(recording_, recording)) inside_.last_stream = -1;
  Queue& q = queue();
  const bool forgotten = faulty("captured-calls-in-no-order", false, recording >= 0);
  if (q.last_stream >= 0 && q.last_stream != stream.id() && !forgotten) stream.wait(q.over);
  q.last_stream = stream.id();
  const bool captured = device_.in_dry_run() || stream.capture_status() != CaptureStatus::none;
  require(captured == (recording >= 0), "within a capture every call is captured");
}

void CallOrder::end(const Stream& stream) { stream.record(queue().over); }

}  // namespace lockstep
