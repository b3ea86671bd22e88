#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

Event::Event(Device& device, const char* name)
    : handle_(device, device.backend_->create_event(), static_cast<int>(device.events_.size())) {
  device.events_.push_back(handle_.get());
  device.tell(CreateEventCall{id(), name});
  if (device.interceptor_) device.interceptor_->created_event(id(), name);
}

void Event::synchronize() const {
  require(!device().record_only_, "no host synchronisation during a dry run");
  if (device().interceptor_ && !device().interceptor_->synchronizes(-1, id())) return;
  device().tell(SyncCall{id()});
  ++device().counters.host_syncs;
  device().backend_->synchronize(handle_.get());
}

bool Event::finished() const {
  require(!device().record_only_, "no query during a dry run");
  const bool finished = device().backend_->finished(handle_.get());
  if (finished) device().tell(QueryCall{id()});
  return finished;
}

}  // namespace lockstep
