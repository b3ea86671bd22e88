// The rate of copies between pinned and device memory, alone and beside a training step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/trainer.h"

namespace lockstep {

struct LinkRate {
  double to_host = 0, to_device = 0;  // Bytes a second, each way.
};

class LinkProbe {
 public:
  // On a simulated device a copy is small: only a GPU's rate means anything.
  explicit LinkProbe(Device& device);

  LinkRate alone(double budget);  // One way at a time.
  LinkRate both();                // Both ways at once.
  // Both ways at once while the trainer makes `steps` steps of about `seconds` each.
  LinkRate beside(Trainer& trainer, int steps, double seconds);

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
  std::size_t bytes_;
  Device& device_;
  Way out_, in_;
};

}  // namespace lockstep
