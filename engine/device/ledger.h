// The list of what a capture, or a dry run of the same host code, put on its streams.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/exchange.h"
#include "engine/device/observer.h"

namespace lockstep {

struct LedgerEntry {
  enum class Kind : std::uint8_t { op, copy, fill, record, wait, exchange };
  Kind kind;
  int stream = -1;
  Place place = {};
  std::optional<Submission> op = {};  // kind op
  void* to = nullptr;                 // kind copy, fill, exchange
  const void* from = nullptr;         // kind copy, exchange
  std::size_t bytes = 0;              // kind copy, fill, exchange: of each rank's part
  std::uint8_t byte = 0;              // kind fill
  int event = -1;                     // kind record, wait
  bool external = false;
  CopyKind copy_kind = CopyKind::host_to_device;  // kind copy
  std::optional<Exchange> exchange = {};          // kind exchange

  friend bool operator==(const LedgerEntry& a, const LedgerEntry& b);  // All but `place`.
};

// What an exchange does to this rank's memory: copies, and bytes that others send (from null).
struct Effect {
  void* to;
  const void* from;
  std::size_t bytes;
};
std::vector<Effect> effects_of(const LedgerEntry& exchange);

// "all_gather (gather of unit 3, 4096 bytes a rank)": what the ranks must agree on.
std::string call_text(const LedgerEntry& exchange);

// Of a poison op; 0 for others.
std::int64_t bytes_poisoned(const Submission& op);

class Ledger {
 public:
  void append(LedgerEntry entry) {
    ops_ += entry.kind == LedgerEntry::Kind::op;
    ops_recomputed_ += entry.kind == LedgerEntry::Kind::op && entry.place.recomputes();
    if (entry.op) bytes_poisoned_ += lockstep::bytes_poisoned(*entry.op);
    entries_.push_back(std::move(entry));
  }
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  std::int64_t ops() const { return ops_; }  // Entries of kind op.
  std::int64_t ops_recomputed() const { return ops_recomputed_; }
  std::int64_t bytes_poisoned() const { return bytes_poisoned_; }
  std::int64_t delays = 0;              // Put between the entries, which they are no part of.
  std::vector<std::int64_t*> counters;  // Each is one more at each launch.

 private:
  std::vector<LedgerEntry> entries_;
  std::int64_t ops_ = 0, ops_recomputed_ = 0, bytes_poisoned_ = 0;
};

// The first difference as a sentence ("entry 12, layer 3 qkv: linear_forward: operand x is not ..."), or "".
std::string difference(const Ledger& captured, const Ledger& now);

}  // namespace lockstep
