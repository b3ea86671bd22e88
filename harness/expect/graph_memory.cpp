#include "harness/expect/graph_memory.h"

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/expect/expectations.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Returns for each microbatch the smallest bucket that holds the documents of every rank; -1 if
// none does, or if a document is longer than max_seqlen.
std::vector<int> buckets_of(const Scenario& scenario, const StepData& step) {
  const std::vector<std::int64_t>& capacities = scenario.cuda_graph.max_packed_seqs;
  const std::size_t ranks = scenario.parallel.data;
  std::vector<int> buckets;
  for (std::size_t first = 0; first < step.microbatches.size(); first += ranks) {
    GraphNeed most;
    for (std::size_t g = first; g < first + ranks; ++g)
      most = larger(most, need_of(scenario.data, lengths_of(step.microbatches[g])));
    const auto holds = std::lower_bound(capacities.begin(), capacities.end(), most.slots);
    const bool fits = unfit(scenario, most) == Unfit::no;
    buckets.push_back(fits ? static_cast<int>(holds - capacities.begin()) : -1);
  }
  return buckets;
}

bool replays_evaluations(const Scenario& scenario) {
  return scenario.cuda_graph.evaluation == GraphEvaluation::replay;
}

// The regions of each piece of the model.
std::vector<std::int64_t> regions_of_pieces(const Scenario& scenario) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::vector<std::int64_t> regions;
  std::int64_t block = 0;
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    regions.push_back(0);
    for (const std::int64_t end = block + count; block < end; ++block)
      regions.back() += !captured_symbols(scenario, at(blocks, block)).empty();
  }
  return regions;
}

// It counts the graphs of a rank of one stage.
class Tally {
 public:
  Tally(const Scenario& scenario, std::span<const std::int64_t> calls, std::int64_t stage)
      : scenario_(scenario), calls_(calls), stage_(stage) {
    tally_.alive.resize(scenario.training.steps);
    const std::vector<std::int64_t> regions = regions_of_pieces(scenario);
    for (std::int64_t chunk = 0; chunk < scenario.parallel.chunks; ++chunk) {
      const std::int64_t piece = chunk * scenario.parallel.pipeline + stage;
      graphs_of_a_bucket_.push_back(at(regions, piece) * (2 * slots_of_piece(scenario, piece) +
                                                          replays_evaluations(scenario)));
    }
  }

  void begin(std::int64_t step) {
    going_ = 0;
    if (holds(scenario_.training.recapture_at, step)) held_.clear();
    if (scenario_.cuda_graph.impl != GraphImpl::partial || !held_.empty()) return;
    for (int bucket = 0; bucket < std::ssize(scenario_.cuda_graph.max_packed_seqs); ++bucket)
      replay_chunks(bucket);
  }

  // Forward and backward passes of the chunks, in the order of the schedule.
  void train(const std::vector<int>& buckets) {
    if (scenario_.cuda_graph.impl == GraphImpl::full_iteration) return replay_all(buckets, true);
    for (const ScheduledPass& pass :
         pass_order(stage_schedule(scenario_, stage_, std::ssize(buckets))))
      replay_regions(at(buckets, pass.microbatch), pass.chunk);
  }
  void evaluate(const std::vector<int>& buckets) {
    if (scenario_.cuda_graph.impl == GraphImpl::full_iteration) return replay_all(buckets, false);
    if (!replays_evaluations(scenario_)) return;
    for (const int bucket : buckets) replay_chunks(bucket);
  }

  void end(std::int64_t step) {
    std::int64_t alive = going_;
    for (const Bucket& one : held_) alive += one.graphs;
    at(tally_.alive, step) = alive;
  }

  GraphTally result() const { return tally_; }

 private:
  // Graphs of one kind record equally many calls, whatever their bucket. A graph of several passes:
  // training or not, and their number; one of a region: its place among the graphs of its chunk in
  // a bucket, and the chunk.
  using Kind = std::tuple<bool, std::int64_t, std::int64_t>;
  // The graphs of a chunk, which go together.
  struct Bucket {
    std::int64_t number, chunk = 0;
    std::int64_t graphs = 0, bytes = 0;
    std::set<Kind> kinds = {};
  };

  void replay_chunks(int number) {
    for (std::int64_t chunk = 0; chunk < std::ssize(graphs_of_a_bucket_); ++chunk)
      replay_regions(number, chunk);
  }
  void replay_regions(std::int64_t number, std::int64_t chunk) {
    const std::int64_t graphs = at(graphs_of_a_bucket_, chunk);
    if (number < 0 || graphs == 0) return;
    Bucket& bucket = use({number, chunk});
    if (bucket.graphs > 0) return;
    const auto captures = [](std::int64_t of_chunk) { return of_chunk > 0; };
    const auto first = std::ranges::find_if(graphs_of_a_bucket_, captures);
    tally_.buckets += chunk == first - graphs_of_a_bucket_.begin();
    std::vector<Kind> kinds;
    for (std::int64_t graph = 0; graph < graphs; ++graph) kinds.emplace_back(true, graph, chunk);
    capture(bucket, kinds);
  }
  void replay_all(const std::vector<int>& buckets, bool training) {
    if (holds(buckets, -1)) return;
    Bucket& bucket = use({*std::max_element(buckets.begin(), buckets.end())});
    const Kind kind(training, std::ssize(buckets), 0);
    if (bucket.kinds.insert(kind).second) capture(bucket, {kind});
  }

  // The last in the list is the one that was used last.
  Bucket& use(const Bucket& used) {
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const Bucket& one) {
      return one.number == used.number && one.chunk == used.chunk;
    });
    if (found == held_.end()) return held_.emplace_back(used);
    held_.splice(held_.end(), held_, found);
    return held_.back();
  }
  void capture(Bucket& bucket, const std::vector<Kind>& kinds) {
    bucket.graphs += std::ssize(kinds);
    for (const Kind& kind : kinds) bucket.bytes += kBytesOfACall * calls_of(kind);
    const std::int64_t limit = scenario_.cuda_graph.graph_memory_limit;
    for (; limit > 0 && held_.size() > 1 && bytes() > limit; held_.pop_front()) {
      tally_.evicted += held_.front().graphs;
      going_ += held_.front().graphs;
    }
  }
  // The first graph of a kind says how many calls it recorded; what later ones recorded is judged.
  std::int64_t calls_of(const Kind& kind) {
    const std::size_t number = tally_.captured++;
    const std::int64_t recorded = number < calls_.size() ? calls_[number] : 0;
    return first_of_kind_.try_emplace(kind, recorded).first->second;
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Bucket& one : held_) sum += one.bytes;
    return sum;
  }

  const Scenario& scenario_;
  std::span<const std::int64_t> calls_;
  std::int64_t stage_;
  std::vector<std::int64_t> graphs_of_a_bucket_;  // By chunk.
  std::list<Bucket> held_;
  std::int64_t going_ = 0;  // Graphs that this step has evicted.
  std::map<Kind, std::int64_t> first_of_kind_;
  GraphTally tally_;
};

}  // namespace

GraphTally tally_graphs(const Scenario& scenario, const DataSource& data,
                        std::span<const std::int64_t> calls, std::int64_t stage) {
  Tally tally(scenario, calls, stage);
  const Scenario::Training& training = scenario.training;
  if (!with_graphs(scenario) || graph_regions(scenario) == 0) return {};
  for (std::int64_t step = scenario.cuda_graph.warmup_steps; step < training.steps; ++step) {
    tally.begin(step);
    tally.train(buckets_of(scenario, data.training(step)));
    const bool due = training.eval_every > 0 && (step + 1) % training.eval_every == 0;
    if (due) tally.evaluate(buckets_of(scenario, data.evaluation(step)));
    tally.end(step);
  }
  return tally.result();
}

std::string unexpected_graphs(const Scenario& scenario, const DataSource& data, std::int64_t ranks,
                              const std::vector<std::int64_t>& seen,
                              const std::map<int, std::vector<std::int64_t>>& calls) {
  const bool limited = scenario.cuda_graph.graph_memory_limit > 0;
  if (limited && std::ssize(calls) != ranks * stages_with_regions(scenario)) return "";
  std::vector<std::int64_t> want(scenario.training.steps);
  const auto add = [&](const GraphTally& tally, std::int64_t times) {
    for (std::int64_t step = 0; step < std::ssize(tally.alive); ++step)
      at(want, step) += times * at(tally.alive, step);
  };
  for (std::int64_t stage = 0; !limited && stage < scenario.parallel.pipeline; ++stage)
    add(tally_graphs(scenario, data, {}, stage), ranks);
  for (const auto& [rank, recorded] : calls) {
    if (limited) add(tally_graphs(scenario, data, recorded, rank / scenario.parallel.data), 1);
  }
  for (std::int64_t step = 0; step < std::ssize(seen); ++step) {
    const std::int64_t there = at(seen, step), wanted = at(want, step);
    if (there == wanted) continue;
    return "the number of graphs is " + std::to_string(there) + " after step " +
           std::to_string(step) + ", expected " + std::to_string(wanted) +
           " (what was captured less what was torn down or evicted)";
  }
  return "";
}

}  // namespace lockstep
