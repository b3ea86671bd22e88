// The rate of copies between pinned and device memory, alone and beside other work.
#pragma once

#include <functional>

#include "engine/device.h"

namespace lockstep {

struct LinkRate {
  double to_host = 0, to_device = 0;  // Bytes a second, each way.
};

class LinkProbe {
 public:
  // On a simulated device a copy is small: only a GPU's rate means anything.
  explicit LinkProbe(Device& device);

  LinkRate alone(double budget);  // One way at a time.
  // Both ways at once while `work` runs, queued by a thread of its own: never more than two copies each way, because
  // the small copies with which a step begins and ends wait for all that were queued before them. `work` must not use
  // this probe's device.
  LinkRate beside(const std::function<void()>& work);
  LinkRate both(double budget);

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
  // Calls of both ways at once until nobody goes on.
  LinkRate while_true(const std::function<bool()>& goes_on);
  std::size_t bytes_;
  Device& device_;
  Way out_, in_;
};

}  // namespace lockstep
