// Documents, weights and scalars of a run, as lockstep gives them to an engine that it did not
// write, and the edits that relations make of them (docs/engine-protocol.md, sections 7 and 13).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/wire/tensor_file.h"
#include "scenarios/documents/documents.h"

namespace lockstep::foreign {

struct StepPlace {
  bool evaluation = false;
  std::int64_t step = 0;
  friend auto operator<=>(const StepPlace&, const StepPlace&) = default;
};

// A document of a run: its pack, by global microbatch, and its number in the pack.
struct DocumentPlace {
  StepPlace at;
  std::int64_t microbatch = 0, document = 0;
};

using NamedTensors = std::vector<std::pair<std::string, wire::TypedTensor>>;

struct EngineFeed {
  std::int64_t vocab = 0, steps = 0;
  std::map<StepPlace, std::vector<Microbatch>> packs;  // By global microbatch.
  std::shared_ptr<const NamedTensors> weights;         // F32.
  std::vector<float> loss_scale, learning_rate;        // For each step of training.
  std::int32_t padding_token = 0;

  const std::vector<Microbatch>& training(std::int64_t step) const;
};

// The feed of a scenario. Equal scenario, equal feed.
EngineFeed make_feed(const Scenario& scenario);

// ---- Edits; each returns a changed copy ---------------------------------------------------------

using Documents = std::function<bool(const DocumentPlace&)>;

// Trains on the documents of one feed and evaluates on those of another: a scenario that evaluates
// may keep packs of its files from training.
EngineFeed with_evaluations(EngineFeed training, const EngineFeed& evaluated);
// The learning rate is 0.
EngineFeed frozen(EngineFeed feed);
// Only `speaking` documents keep their targets.
EngineFeed with_voice(EngineFeed feed, const Documents& speaking);
// Every token of the documents that are not `kept` becomes another one.
EngineFeed with_others_replaced(EngineFeed feed, const Documents& kept);
// Microbatch order[g] of each training step comes in place g.
EngineFeed with_microbatches_in(const std::vector<std::int64_t>& order, EngineFeed feed);
// The documents of each pack in the opposite order.
EngineFeed with_documents_reversed(EngineFeed feed);

// Documents that have tokens are counted in each pack; those of an even number are one half, those
// of an odd number the other. Documents without tokens are in neither.
enum class Half { even, odd };
Documents half_of(const EngineFeed& feed, Half half);
// Whether one of these documents has a target.
bool has_target(const EngineFeed& feed, const Documents& documents);
// Whether some pack has documents of both halves.
bool has_two_halves(const EngineFeed& feed);

// Writes both files into `folder`, which must exist. The weights are written to `weights_file`
// unless it exists, and linked from there.
void write_feed(const EngineFeed& feed, const std::string& folder, const std::string& weights_file);

}  // namespace lockstep::foreign
