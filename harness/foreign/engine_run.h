// What an engine says of one run, checked for form: where documents lie, the digest of every tensor
// that it observed, its counters (docs/engine-protocol.md, section 8).
#pragma once

#include <boost/json.hpp>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/judge_kind.h"
#include "harness/foreign/engine_feed.h"
#include "harness/foreign/hello.h"

namespace lockstep::foreign {

struct TensorId {
  std::string kind, name;
  StepPlace at;
  std::int64_t microbatch = -1;  // Global; -1 for a tensor of a step.
  friend auto operator<=>(const TensorId&, const TensorId&) = default;

  bool is_of_a_microbatch() const { return microbatch >= 0; }
  std::string text() const;  // "gradient of layers.0.qkv.weight in step 0"
  // As `dump` names it, on the rank that has it.
  std::string key(int ranks) const;
};

struct TensorEntry {
  std::string dtype, sha256;
  std::vector<std::int64_t> shape;
  std::optional<std::vector<std::string>> by_document;
  std::int64_t nan = 0, nonzero = 0;
  std::int64_t outside = 0;  // Elements that are not 0 in rows of no document, as far as it says.
};

struct EngineRun {
  std::vector<TensorId> order;  // Program order.
  std::map<TensorId, TensorEntry> tensors;
  // Rows [begin, end) of each document of a pack, by step and global microbatch.
  std::map<std::pair<StepPlace, std::int64_t>, std::vector<std::pair<std::int64_t, std::int64_t>>>
      rows;
  std::vector<std::map<std::string, std::int64_t>> counters;  // By rank.
  double seconds = 0;

  // The sum over the ranks; 0 for one that the engine does not count.
  std::int64_t counter(const std::string& name) const;
  bool has_gradient() const;  // One that is not zero.
};

// Kinds whose tensors belong to a microbatch.
bool is_kind_of_a_microbatch(const std::string& kind);

// What is wrong with a run whatever it is compared with.
struct RunFault {
  JudgeKind judge;
  std::string reason;
};

// Throws EngineFailure for replies that are not as section 8 says.
EngineRun run_from_replies(const std::vector<boost::json::object>& replies);
// Rows that are not the documents', and entries that are missing.
std::optional<RunFault> fault_of(const EngineRun& run, const EngineFeed& feed,
                                 std::int64_t pack_length, const Hello& hello,
                                 const std::vector<std::string>& observed);

}  // namespace lockstep::foreign
