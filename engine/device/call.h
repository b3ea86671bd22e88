// One call at the device, as a value: observers are told it, interceptors change it, captures and
// dry runs list it, and logs keep it. Streams, events and graphs are named by small integers, given
// in order of creation on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/exchange.h"
#include "engine/device/step_location.h"

namespace lockstep {

class Ledger;

// ---- Calls on a stream, which a capture can list ------------------------------------------------

struct SubmitCall {
  Submission op;
  friend bool operator==(const SubmitCall&, const SubmitCall&) = default;
};
struct CopyCall {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  CopyKind kind = CopyKind::host_to_device;
  std::string tensor = {};  // As a judge knows it; "" where a copy is of no tensor of its own.
  friend bool operator==(const CopyCall&, const CopyCall&) = default;
};
struct FillCall {
  void* to = nullptr;
  std::uint8_t byte = 0;
  std::size_t bytes = 0;
  friend bool operator==(const FillCall&, const FillCall&) = default;
};
struct RecordCall {
  int event = -1;
  bool external = false;  // In a capture: a node of the graph that other streams can wait for.
  friend bool operator==(const RecordCall&, const RecordCall&) = default;
};
struct WaitCall {
  int event = -1;
  bool external = false;
  friend bool operator==(const WaitCall&, const WaitCall&) = default;
};
// Ledgers list it whole. Observers are told of it as what it does to this rank's memory (effects_of
// in ledger.h).
struct ExchangeCall {
  Exchange exchange;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;  // For each rank's part.
  // Compares what the ranks must agree on, and the memory.
  friend bool operator==(const ExchangeCall& a, const ExchangeCall& b);
};

// ---- All other calls ----------------------------------------------------------------------------

struct CreateStreamCall {
  std::string name;
  friend bool operator==(const CreateStreamCall&, const CreateStreamCall&) = default;
};
// The stream's owner lets go of it, whether or not its work is over; so with the other calls that
// destroy.
struct DestroyStreamCall {
  friend bool operator==(const DestroyStreamCall&, const DestroyStreamCall&) = default;
};
struct CreateEventCall {
  int event = -1;
  std::string name;
  friend bool operator==(const CreateEventCall&, const CreateEventCall&) = default;
};
struct DestroyEventCall {
  int event = -1;
  friend bool operator==(const DestroyEventCall&, const DestroyEventCall&) = default;
};
// This process has joined a library's communicator.
struct CreateCommunicatorCall {
  const BackendCommunicator* ranks = nullptr;
  friend bool operator==(const CreateCommunicatorCall&, const CreateCommunicatorCall&) = default;
};
struct DestroyCommunicatorCall {
  const BackendCommunicator* ranks = nullptr;
  friend bool operator==(const DestroyCommunicatorCall&, const DestroyCommunicatorCall&) = default;
};
struct BeginCaptureCall {
  friend bool operator==(const BeginCaptureCall&, const BeginCaptureCall&) = default;
};
struct EndCaptureCall {
  int graph = -1;
  std::shared_ptr<const Ledger> captured;
  friend bool operator==(const EndCaptureCall&, const EndCaptureCall&) = default;
};
// The capture that was begun on the stream failed or was given up; no graph came of it.
struct AbortCaptureCall {
  friend bool operator==(const AbortCaptureCall&, const AbortCaptureCall&) = default;
};
struct LaunchCall {
  int graph = -1;
  std::shared_ptr<const Ledger> captured;
  friend bool operator==(const LaunchCall&, const LaunchCall&) = default;
};
// A graph is created by the end of its capture.
struct DestroyGraphCall {
  int graph = -1;
  friend bool operator==(const DestroyGraphCall&, const DestroyGraphCall&) = default;
};
// The host waits for all of the stream, or for an event.
struct SyncCall {
  int event = -1;  // -1: the stream.
  friend bool operator==(const SyncCall&, const SyncCall&) = default;
};
// A query found the stream or the event finished. Told after the query, and only if it said so.
struct QueryCall {
  int event = -1;  // -1: the stream.
  friend bool operator==(const QueryCall&, const QueryCall&) = default;
};
// The host itself writes or reads pinned memory.
struct HostAccessCall {
  const void* memory = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
  friend bool operator==(const HostAccessCall&, const HostAccessCall&) = default;
};
struct AllocateCall {
  void* memory = nullptr;
  std::size_t bytes = 0;
  bool pinned = false;
  friend bool operator==(const AllocateCall&, const AllocateCall&) = default;
};
struct ReleaseCall {
  void* memory = nullptr;
  bool pinned = false;
  friend bool operator==(const ReleaseCall&, const ReleaseCall&) = default;
};
// Ranks that are threads have a host each: from here on the calls are those of this rank's, which
// begins after all that its starter did. -1: the starter again, who has waited for the end of all.
struct RankCall {
  int rank = -1;
  friend bool operator==(const RankCall&, const RankCall&) = default;
};
// The host comes to a barrier of all ranks, or goes on from it: after all have come.
struct BarrierCall {
  bool goes_on = false;
  friend bool operator==(const BarrierCall&, const BarrierCall&) = default;
};

using DeviceCall =
    std::variant<RecordCall, WaitCall, SubmitCall, CopyCall, FillCall, ExchangeCall,
                 CreateStreamCall, DestroyStreamCall, CreateEventCall, DestroyEventCall,
                 CreateCommunicatorCall, DestroyCommunicatorCall, BeginCaptureCall, EndCaptureCall,
                 AbortCaptureCall, LaunchCall, DestroyGraphCall, SyncCall, QueryCall,
                 HostAccessCall, AllocateCall, ReleaseCall, RankCall, BarrierCall>;

// A call with what all calls share.
struct IssuedCall {
  DeviceCall call;
  int stream = -1;  // -1: a call of the host that concerns no stream.
  StepLocation place = {};

  // The call if it is a `Call`, else null.
  template <class Call>
  const Call* as() const {
    return std::get_if<Call>(&call);
  }
  template <class Call>
  Call* as() {
    return std::get_if<Call>(&call);
  }
  friend bool operator==(const IssuedCall& a, const IssuedCall& b) {  // All but the place.
    return a.stream == b.stream && a.call == b.call;
  }
};

// A visitor made of lambdas, for std::visit.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace lockstep
