#include "engine/graph_set.h"

#include "engine/trainer.h"
#include "kernels/fault.h"
#include "kernels/require.h"

namespace lockstep {

std::string to_text(const GraphKey& key) {
  static constexpr const char* kKinds[] = {"forward", "backward", "iteration", "evaluation"};
  return std::string(kKinds[static_cast<int>(key.kind)]) + " graph of region " + std::to_string(key.region) +
         ", slot " + std::to_string(key.slot) + ", bucket " + std::to_string(key.bucket);
}

void GraphSet::capture(const GraphKey& key, const Body& body) {
  if (fault("warm-up-pass-leaves-its-gradients")) body();
  const Place place = stream_.device().place;  // What comes behind the launch has no place inside of the graph.
  stream_.begin_capture();
  try {
    body();
    // A call that is illegal while a stream captures: what a hidden allocation in a layer would do.
    if (fault("allocation-during-capture")) DeviceBuffer(stream_.device(), 256);
    if (fault("host-wait-during-capture")) stream_.synchronize();
    graphs_.insert_or_assign(key, Captured{stream_.end_capture(), addresses_()});
  } catch (const DeviceError& error) {
    stream_.abort_capture();
    clear();
    throw EngineViolation("capture", to_text(key) + ": " + error.what());
  }
  stream_.device().place = place;
  ++captured;
}

void GraphSet::check(const GraphKey& key, const Captured& graph, const Body& body) const {
  const std::vector<const void*> now = addresses_();
  if (now != graph.addresses) {
    std::size_t i = 0;
    while (i < now.size() && i < graph.addresses.size() && now[i] == graph.addresses[i]) ++i;
    throw EngineViolation("address", to_text(key) + ": buffer " + std::to_string(i) + " moved since capture");
  }
  if (!dry_run_) return;
  const Place place = stream_.device().place;
  Ledger ledger;
  {
    const Device::RecordOnly only(stream_.device(), ledger);
    body();
  }
  stream_.device().place = place;
  const std::string found = difference(graph.graph.ledger(), ledger);
  if (!found.empty()) throw EngineViolation("ledger", to_text(key) + ": " + found);
}

void GraphSet::launch(const GraphKey& key, const Body& body) {
  const auto found = graphs_.find(key);
  require(found != graphs_.end(), "a graph is captured before it is launched");
  check(key, found->second, body);
  if (fault("replay-skipped-once") && launches == 3) {
    ++launches;
    return;
  }
  stream_.launch(found->second.graph);
  if (fault("replay-runs-twice") && key.kind == GraphKey::Kind::backward) stream_.launch(found->second.graph);
  ++launches;
}

}  // namespace lockstep
