// The list of the calls that a capture, or a dry run of the same host code, put on its streams.
#pragma once

#include <string>
#include <vector>

#include "engine/device/call.h"

namespace lockstep {

// The effects of an exchange on this rank's memory: copies, and bytes that others send (from null).
struct Effect {
  void* to;
  const void* from;
  std::size_t bytes;
};
std::vector<Effect> effects_of(const ExchangeCall& exchange);

// "all_gather (gather of unit 3, 4096 bytes a rank)": what the ranks must agree on.
std::string call_text(const ExchangeCall& exchange);

// Returns how many bytes a poison op poisons; 0 for other ops.
std::int64_t bytes_poisoned(const Submission& op);

class Ledger {
 public:
  void append(IssuedCall call) {
    if (const auto* submitted = call.as<SubmitCall>()) {
      ++ops_;
      ops_recomputed_ += call.place.recomputes();
      bytes_poisoned_ += lockstep::bytes_poisoned(submitted->op);
    }
    entries_.push_back(std::move(call));
  }
  const std::vector<IssuedCall>& entries() const { return entries_; }
  std::int64_t ops() const { return ops_; }  // How many entries are ops.
  std::int64_t ops_recomputed() const { return ops_recomputed_; }
  std::int64_t bytes_poisoned() const { return bytes_poisoned_; }
  std::int64_t delays = 0;              // Put between the entries, which they are no part of.
  std::vector<std::int64_t*> counters;  // Each is one more at each launch.

 private:
  std::vector<IssuedCall> entries_;
  std::int64_t ops_ = 0, ops_recomputed_ = 0, bytes_poisoned_ = 0;
};

// The first difference as a sentence ("entry 12, layer 3 qkv: linear_forward: operand x is not
// ..."), or "".
std::string difference(const Ledger& captured, const Ledger& now);

}  // namespace lockstep
