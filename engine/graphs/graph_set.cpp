#include "engine/graphs/graph_set.h"

#include <algorithm>

#include "engine/device/violation.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {

namespace {

const char* name_of(GraphKey::Kind kind) {
  static constexpr const char* kNames[] = {"forward graph", "backward graph", "iteration graph",
                                           "evaluation graph"};
  return kNames[static_cast<int>(kind)];
}

std::int64_t bytes_of(const Graph& graph) {
  return GraphSet::kCallBytes * std::ssize(graph.ledger().entries());
}

}  // namespace

std::string to_text(const GraphKey& key) {
  return std::string(name_of(key.kind)) + " of region " + std::to_string(key.region) + ", slot " +
         std::to_string(key.slot) + ", bucket " + std::to_string(key.bucket);
}

// Calls that are illegal while a stream captures, as a hidden allocation or wait in a layer would
// be: none but faults.
static void make_illegal_calls(const Stream& stream) {
  using Call = std::function<void()>;
  const auto allocate = [&] { DeviceBuffer(stream.device(), 256); };
  const auto wait = [&] { stream.synchronize(); };
  const Call hidden_allocation = faulty<Call>(
      "allocation-during-capture", [] {}, allocate);
  const Call hidden_wait = faulty<Call>(
      "host-wait-during-capture", [] {}, wait);
  hidden_allocation();
  hidden_wait();
}

void GraphSet::capture(const GraphKey& key, const Body& body) {
  const Body destroy = [this] { destroy_evicted(); };
  const Body hidden_destruction = faulty<Body>(
      "graph-destroyed-during-a-capture", [] {}, destroy);
  // Calls after the launch do not belong to a place inside of the graph.
  const StepLocation place = stream_.device().place;
  stream_.begin_capture();
  try {
    body();
    make_illegal_calls(stream_);
    hidden_destruction();
    const auto [place_of, is_new] =
        graphs_.try_emplace(key, Captured{stream_.end_capture(), addresses_()});
    require(is_new, "a graph is captured once");
    bytes_ += bytes_of(place_of->second.graph);
  } catch (const DeviceError& error) {
    stream_.abort_capture();
    clear();
    throw EngineViolation(JudgeKind::capture, to_text(key) + ": " + error.what());
  }
  stream_.device().place = place;
  ++captured;
  use(key);
  evict_but(bucket_of(key));
}

// Whether another bucket, of any chunk, may go.
bool GraphSet::has_others(Bucket bucket) const {
  const auto of_chunk = std::ranges::count_if(
      last_use_, [&](const auto& one) { return one.first.chunk == bucket.chunk; });
  return faulty("eviction-keeps-a-bucket-of-each-chunk", std::ssize(last_use_), of_chunk) > 1;
}

// A bucket of a chunk goes whole: of its graphs a pass through the chunk needs all.
void GraphSet::evict_but(Bucket bucket) {
  const auto earlier = [](const auto& a, const auto& b) { return a.second < b.second; };
  const std::int64_t limit = faulty("eviction-left-out", memory_limit_, 0);
  while (limit > 0 && bytes_ > limit && has_others(bucket)) {
    std::map<Bucket, std::int64_t> others = last_use_;
    others.erase(bucket);
    const auto [least, most] = std::minmax_element(others.begin(), others.end(), earlier);
    evict(faulty("eviction-of-the-bucket-used-last", least, most)->first);
  }
}

void GraphSet::evict(Bucket bucket) {
  std::vector<Graph> gone;
  std::vector<Graph>* const kept =
      faulty("evicted-graph-destroyed-while-it-runs", &evicted_, &gone);
  for (auto one = graphs_.begin(); one != graphs_.end();) {
    const auto next = std::next(one);
    if (bucket_of(one->first) == bucket) {
      bytes_ -= faulty("eviction-forgets-what-it-freed", bytes_of(one->second.graph), 0);
      kept->push_back(std::move(one->second.graph));
      graphs_.erase(one);
      ++evicted;
    }
    one = next;
  }
  last_use_.erase(bucket);
}

void GraphSet::clear() {
  graphs_.clear();
  destroy_evicted();
  bytes_ = faulty("recapture-forgets-what-it-freed", std::int64_t{0}, bytes_);
  last_use_.clear();
}

void GraphSet::check(const GraphKey& key, const Captured& graph, const Body& body) const {
  const std::vector<const void*> now = addresses_();
  if (now != graph.addresses) {
    std::size_t i = 0;
    while (i < now.size() && i < graph.addresses.size() && now[i] == graph.addresses[i]) ++i;
    throw EngineViolation(JudgeKind::address,
                          to_text(key) + ": buffer " + std::to_string(i) + " moved since capture");
  }
  if (!dry_run_) return;
  const StepLocation place = stream_.device().place;
  Ledger ledger;
  {
    const Device::RecordOnly only(stream_.device(), ledger);
    body();
  }
  stream_.device().place = place;
  const std::string found = difference(graph.graph.ledger(), ledger);
  if (!found.empty()) throw EngineViolation(JudgeKind::ledger, to_text(key) + ": " + found);
}

void GraphSet::launch(const GraphKey& key, const Body& body, const Stream& stream) {
  const auto found = graphs_.find(key);
  require(found != graphs_.end(), "a graph is captured before it is launched");
  use(key);
  check(key, found->second, body);
  stream.launch(found->second.graph, name_of(key.kind));
  ++launches;
}

}  // namespace lockstep
