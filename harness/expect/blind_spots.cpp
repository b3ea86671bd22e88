#include "harness/expect/blind_spots.h"

#include <string_view>
#include <utility>

#include "harness/expect/bucket_use.h"
#include "harness/expect/offload_bytes.h"
#include "harness/expect/sharding_plan.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

// Weights are about 0.02: below this, an update of about the learning rate is below half a unit in
// their last place.
constexpr double kNoLearning = 1e-9;

// Documents of a shape that draws how many there are, cut so that half of the packs cannot be full.
std::string cut_documents(const Scenario::Data& data) {
  const Scenario::Data::Distribution& drawn = data.distribution;
  if (data.kind != DataKind::distribution || !draws_counts(drawn.shape)) return "";
  constexpr std::int64_t kMedian = 12;
  std::int64_t documents = kMedian, packs = 0, upto = 0;
  for (const auto& pair : drawn.histogram) packs += pair[1];
  for (const auto& pair : drawn.histogram) {
    if (2 * (upto += pair[1]) < packs) continue;
    documents = pair[0];
    break;
  }
  const std::int64_t rows = documents * drawn.max,
                     wanted = data.pack_length * drawn.fill.millionths / 1'000'000;
  if (documents == 0 || rows >= wanted) return "";
  return "data.distribution.max " + std::to_string(drawn.max) +
         " cuts documents: half of the packs have at most " + std::to_string(documents) +
         ", which fill at most " + std::to_string(rows) + " of " +
         std::to_string(data.pack_length) + " rows";
}

}  // namespace

bool sums_have_no_order(const Scenario& scenario) {
  const bool one_fold = scenario.fsdp.strategy >= Sharding::optim_grads;
  return scenario.parallel.data == 2 && (!one_fold || most_microbatches(scenario.training) == 1);
}

std::string blind_line(const std::string& spot) {
  static constexpr std::pair<std::string_view, const char*> kRemedies[] = {
      {"one rank:", "parallel.data: 2"},
      {"two ranks:", "parallel.data: 3"},
      {"no learning rate:", "training.optimizer.lr: 1e-3"},
      {"no dropout:", "model.dropout: 0.1"},
      {"no more than two units", "a longer model.pattern, of three equal blocks"},
      {"one microbatch:", "training.microbatches: 2"},
      {"ranks are processes:", "parallel.transport: local, except under full_iteration"},
      {"the library's sums:", "fsdp.reduction: ordered"},
      {"ranks ", "other documents for each rank in data"},
      {"cuda_graph.max_packed_seqs:", "packs that take this capacity, or leave it out"},
      {"data.distribution.max", "as large a data.distribution.max as data.pack_length"},
      {"offload.delta_bytes:", "modules with layers in later stages in offload.modules"},
      {"offload.delay_until_cuda_graph:", "expert_fc1 or moe_act in offload.modules"}};
  for (const auto& [begin, remedy] : kRemedies) {
    if (spot.starts_with(begin)) return "blind: " + spot + "; to show it: " + remedy;
  }
  return "blind: " + spot;
}

std::vector<std::string> blind_spots(const Scenario& scenario) {
  std::vector<std::string> list;
  for (const std::int64_t bucket : unused_buckets(scenario)) {
    list.push_back("cuda_graph.max_packed_seqs: no graph of capacity " + std::to_string(bucket) +
                   " is replayed, because no microbatch after warm-up takes that bucket");
  }
  if (const std::string short_of = cut_documents(scenario.data); !short_of.empty())
    list.push_back(short_of);
  for (const StayingModule& one : staying_modules(scenario)) {
    list.push_back(std::string("offload.modules: nothing of ") + word(one.module) +
                   " moves, because " + one.why);
  }
  if (scenario.offload.delay_until_cuda_graph && offload_demand(scenario).of_experts == 0)
    list.push_back(
        "offload.delay_until_cuda_graph: no tensor of experts is offloaded, so it delays nothing");
  const bool has_delta = scenario.offload.delta_bytes > 0 && scenario.parallel.pipeline > 1;
  if (with_offload(scenario) && has_delta && !keeps_for_delta(scenario))
    list.push_back(
        "offload.delta_bytes: no stage but the first has anything to offload, so it keeps nothing");
  const Transport transport = scenario.parallel.transport;
  if (ranks_of_run(scenario) > 1 && (transport == Transport::shm || transport == Transport::nccl))
    list.push_back("ranks are processes: the checker does not see the order between them");
  if (!with_reduction(scenario)) return list;
  const bool one_microbatch = most_microbatches(scenario.training) == 1;
  if (scenario.parallel.data == 1) list.push_back("one rank: rank mix-ups cannot be detected");
  if (sums_have_no_order(scenario)) list.push_back("two ranks: a sum of two has no order");
  if (scenario.training.optimizer.lr < kNoLearning)
    list.push_back("no learning rate: weights of a step before are the same");
  if (with_graphs(scenario) && scenario.model.dropout.millionths == 0) {
    list.push_back("no dropout: a capture that draws random numbers changes nothing");
  }
  const bool slots = scenario.fsdp.strategy >= Sharding::optim_grads && scenario.fsdp.double_buffer;
  if (slots && plan_sharding(scenario).pooled.size() <= 2) {
    list.push_back("no more than two units in two slots: nobody takes the slot of another");
  }
  const bool sums_in_order = scenario.parallel.data > 1 && !sums_have_no_order(scenario);
  if (scenario.fsdp.reduction == Reduction::nccl && sums_in_order)
    list.push_back(
        "the library's sums: an eager run judges, which shares what is wrong with all runs");
  if (one_microbatch) list.push_back("one microbatch: nothing is left of one before");
  return list;
}

}  // namespace lockstep
