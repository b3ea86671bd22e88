// The rate of copies between pinned and device memory, alone and beside other work.
#pragma once

#include <functional>

#include "engine/device/device.h"

namespace lockstep {

struct LinkRate {
  double to_host = 0, to_device = 0;  // Bytes a second, each way.
};

class LinkProbe {
 public:
  // Copies on a simulated device are small, since only a GPU's rate is meaningful.
  explicit LinkProbe(Device& device);

  LinkRate alone(double budget);  // One way at a time.
  LinkRate both(double budget);   // Both ways at once.
  // Both ways at once while `work` runs, queued by a thread of its own: one copy each way at a
  // time, because the small copies with which a step begins and ends wait for as long as others are
  // queued. For at most so many seconds. `work` must not use this probe's device.
  LinkRate beside(const std::function<void()>& work, double at_most);

 private:
  struct Way {
    Way(Device& device, const char* name, std::size_t bytes, CopyKind kind);
    void copy() const;
    Stream stream;
    DeviceBuffer device_memory;
    PinnedBuffer pinned;
    CopyKind kind;
  };
  double rate_of(const Way& way, double budget) const;
  // Copies in both directions, with `under_way` copies of each in flight, while goes_on() is true.
  LinkRate while_true(std::size_t under_way, const std::function<bool()>& goes_on);
  std::size_t bytes_;
  Device& device_;
  Way out_, in_;
};

}  // namespace lockstep
