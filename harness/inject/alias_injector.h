// Changes the calls that an alias of a device fault names (harness/inject/fault_aliases.h). What it
// does in a capture it does in the dry runs of that capture too, as a bug in the engine's own code
// would.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "harness/inject/fault_aliases.h"
#include "harness/inject/fault_injector.h"

namespace lockstep {

class AliasInjector final : public FaultInjector {
 public:
  explicit AliasInjector(const FaultAlias& alias) : alias_(alias) {}
  std::int64_t triggered() const override { return triggered_; }

  void attached(Device& device) override { device_ = &device; }
  void created_stream(int stream, const char* name) override;
  void created_event(int event, const char* name) override { events_[event] = name; }
  std::vector<IssuedCall> instead_of(const IssuedCall& call, bool dry_run) override;
  int launches(int stream, int graph, const Ledger& ledger, const StepLocation& place) override;
  bool synchronizes(int stream, int event) override;

 private:
  struct NamedStream {
    std::string name;
    int rank;
  };
  // All but the op and the occurrence.
  bool matches(int stream, int event, const StepLocation& place) const;
  bool is_later(const IssuedCall& call);  // Than the first of its event or output.
  bool changes(const IssuedCall& call);
  std::vector<IssuedCall> advanced(const IssuedCall& call);
  int target_stream(int stream) const;

  FaultAlias alias_;
  Device* device_ = nullptr;
  std::map<int, NamedStream> streams_;
  std::map<int, std::string> events_;
  std::set<int> seen_events_;
  std::set<const void*> seen_outputs_;
  std::map<int, std::int64_t> launches_;  // By stream.
  struct Held {
    int copies = 0;  // Since the last record.
    std::vector<IssuedCall> calls;
  };
  std::map<int, Held> held_;  // By stream: what comes behind a record that is to come.
  std::int64_t triggered_ = 0;
};

}  // namespace lockstep
