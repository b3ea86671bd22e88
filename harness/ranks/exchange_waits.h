// How long compute waits for the exchange of experts: a stopwatch on compute's stream begins before
// each of its waits for a stream of exchanges and ends behind it. The calls stay what they are.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "engine/device/cuda_object.h"
#include "harness/case/forwarding_backend.h"

namespace lockstep {

class ExchangeWaits final : public ForwardingBackend {
 public:
  ExchangeWaits(std::unique_ptr<Backend> backend, std::unique_ptr<StreamStopwatch> stopwatch)
      : ForwardingBackend(std::move(backend)), stopwatch_(std::move(stopwatch)) {}

  bool is_on = false;  // Waits are timed, but for those in captures.
  // Returns the seconds of all timed waits since it was called last.
  double take() { return stopwatch_->take(); }

  BackendStream* create_stream(const char* name) override;
  void destroy_stream(BackendStream* stream) noexcept override;
  void record(BackendStream* stream, BackendEvent* event, bool external) override;
  void wait(BackendStream* stream, BackendEvent* event, bool external) override;

 private:
  bool is_timed(BackendStream* stream, BackendEvent* event, bool external);

  std::unique_ptr<StreamStopwatch> stopwatch_;
  std::set<const BackendStream*> compute_, exchanges_;
  std::map<const BackendEvent*, const BackendStream*> recorded_on_;  // By each event last.
};

}  // namespace lockstep
