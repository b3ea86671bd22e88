// Faults at the device that need no code: every call of a recorded run can be left out, made twice,
// put on another stream or given another address. A fault is an operator, a site (the kind of call
// and its place in the step) and the number of the call there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class DeviceOperator : std::uint8_t {
  drop_wait,    // A stream does not wait for an event.
  drop_record,  // An event is not recorded, so that waits see the previous record.
  drop_sync,    // The host does not wait for a stream or an event.
  drop_copy,
  drop_fill,
  drop_op,
  move_wait,      // Another stream waits.
  move_record,    // The event is recorded on another stream.
  move_op,        // The op runs on another stream.
  free_early,     // The memory of an operand goes back right after the op was submitted.
  alias_buffers,  // A new buffer is an older one that is as large.
  wrong_buffer,   // The op writes to another buffer that is large enough.
  move_address,   // Between two replays a buffer of the graph moves, and the graph keeps the old
                  // address.
  replay_twice,
  replay_none,
  bake_scalar,  // A graph holds another value of a scalar than the host passes now.
};
inline constexpr std::array<std::string_view, 16> kDeviceOperators{
    "drop-wait",    "drop-record",  "drop-sync",   "drop-copy",  "drop-fill",     "drop-op",
    "move-wait",    "move-record",  "move-op",     "free-early", "alias-buffers", "wrong-buffer",
    "move-address", "replay-twice", "replay-none", "bake-scalar"};
std::string_view to_text(DeviceOperator op);

// "drop-wait/eager/compute/step/wait-for-loader/2": the third such wait of a run, counted from 0.
struct DeviceFault {
  DeviceOperator op = DeviceOperator::drop_wait;
  std::string site;
  std::int64_t index = 0;
};
std::string to_text(const DeviceFault& fault);

// Absent if the text names none. Whether a run has such a call is known only at its end.
std::optional<DeviceFault> device_fault(std::string_view text);

}  // namespace lockstep
