#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

Event::Event(Device& device, const char* name)
    : device_(&device),
      handle_(*device.backend_, device.backend_->create_event()),
      id_(static_cast<int>(device.events_.size())) {
  device.events_.push_back(handle_.get());
  if (device.interceptor_) device.interceptor_->created_event(id_, name);
}

void Event::synchronize() const {
  require(!device_->record_only_, "no host synchronisation during a dry run");
  if (device_->interceptor_ && !device_->interceptor_->synchronizes(-1, id_)) return;
  device_->tell(SyncCall{id_});
  ++device_->counters.host_syncs;
  device_->backend_->synchronize(handle_.get());
}

bool Event::finished() const {
  require(!device_->record_only_, "no query during a dry run");
  const bool finished = device_->backend_->finished(handle_.get());
  if (finished) device_->tell(QueryCall{id_});
  return finished;
}

}  // namespace lockstep
