// The captured graphs of a run. Each is checked against what it was captured from before every
// launch. Above a limit the bucket of a chunk that was used least recently loses its graphs.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <vector>

#include "engine/device/device.h"

namespace lockstep {

// The key of a graph. `region` counts the captured parts of the pattern; full_iteration has one
// region.
struct GraphKey {
  enum class Kind : std::uint8_t { forward, backward, iteration, evaluation };
  Kind kind;
  int region = 0;
  int slot = 0;
  int bucket = 0;
  int microbatches = 0;  // iteration, evaluation: another count is another graph.
  int chunk = 0;         // The stage numbers them.
  friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
};
std::string to_text(const GraphKey& key);

class GraphSet {
 public:
  using Body = std::function<void()>;
  using Addresses = std::function<std::vector<const void*>()>;
  // The size for which a recorded call counts, whatever a device needs for it, so that all devices
  // evict alike (docs/decisions.md).
  static constexpr std::int64_t kCallBytes = 1024;

  // `addresses` lists every buffer that a graph may hold; `dry_run` records the body again at each
  // launch; `memory_limit` in bytes, 0 for none.
  GraphSet(const Stream& stream, Addresses addresses, bool dry_run, std::int64_t memory_limit)
      : stream_(stream),
        addresses_(std::move(addresses)),
        dry_run_(dry_run),
        memory_limit_(memory_limit) {}

  // The graphs that a pass through a chunk needs, and that are evicted together.
  struct Bucket {
    int number = 0, chunk = 0;
    friend auto operator<=>(const Bucket&, const Bucket&) = default;
  };

  // Records `body` without running it, then evicts other buckets while the graphs exceed the limit.
  // Their launches may be under way, so they are not destroyed yet. On failure the stream is
  // usable, all graphs are gone, and EngineViolation (judge "capture") names the graph and the
  // call.
  void capture(const GraphKey& key, const Body& body);
  bool has(const GraphKey& key) const { return graphs_.contains(key); }
  bool has_bucket(Bucket bucket) const { return last_use_.contains(bucket); }
  bool empty() const { return graphs_.empty(); }
  // EngineViolation: judge "address" when a buffer moved since capture, "ledger" when `body` would
  // now submit something else.
  void launch(const GraphKey& key, const Body& body) { launch(key, body, stream_); }
  // The same on another stream than the one that captured.
  void launch(const GraphKey& key, const Body& body, const Stream& stream);
  void clear();
  // Call where the host has waited for all launches.
  void destroy_evicted() { evicted_.clear(); }
  const Ledger& ledger(const GraphKey& key) const { return graphs_.at(key).graph.ledger(); }

  std::int64_t captured = 0;
  std::int64_t launches = 0;
  std::int64_t evicted = 0;  // Graphs.

 private:
  struct Captured {
    Graph graph;
    std::vector<const void*> addresses;
  };
  void check(const GraphKey& key, const Captured& captured, const Body& body) const;
  static Bucket bucket_of(const GraphKey& key) { return {key.bucket, key.chunk}; }
  void use(const GraphKey& key) { last_use_[bucket_of(key)] = ++uses_; }
  bool has_others(Bucket bucket) const;
  void evict_but(Bucket bucket);  // While the graphs exceed the limit.
  void evict(Bucket bucket);

  const Stream& stream_;
  Addresses addresses_;
  bool dry_run_;
  std::int64_t memory_limit_;
  std::map<GraphKey, Captured> graphs_;
  std::int64_t bytes_ = 0;  // For those.
  std::vector<Graph> evicted_;
  std::map<Bucket, std::int64_t> last_use_;  // For each that has graphs.
  std::int64_t uses_ = 0;
};

}  // namespace lockstep
