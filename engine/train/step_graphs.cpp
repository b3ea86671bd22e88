#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/train/step_listener.h"
#include "engine/train/step_loop.h"
#include "kernels/core/fault.h"

namespace lockstep {

bool StepLoop::replays(std::int64_t step) const {
  const GraphImpl impl =
      faulty("graphs-never-replayed", scenario_.cuda_graph.impl, GraphImpl::none);
  const std::int64_t warm = faulty("resume-warms-up-again", step, step - first_step_);
  return impl != GraphImpl::none && warm >= scenario_.cuda_graph.warmup_steps;
}

bool StepLoop::has_regions(const Chunk& chunk) const {
  return std::ranges::any_of(segments_of(chunk),
                             [](const Segment& segment) { return segment.region >= 0; });
}

bool StepLoop::has_graphs(const MicrobatchPass& pass) const {
  return graphs_.has_bucket({pass.bucket, pass.chunk}) || !has_regions(chunk_of(pass));
}

void StepLoop::prepare_graphs(std::int64_t step) {
  const bool whole = scenario_.cuda_graph.impl == GraphImpl::full_iteration;
  const auto captures = [&](const Chunk& chunk) { return whole || has_regions(chunk); };
  if (!replays(step) || (transfers_ && std::ranges::none_of(chunks_, captures))) return;
  const std::vector<std::int64_t>& steps = scenario_.training.recapture_at;
  const bool due = !graphs_.empty() && std::find(steps.begin(), steps.end(), step) != steps.end();
  counters_.recaptures += due;
  const bool asked = faulty("recapture-keeps-the-old-graphs", due, false);
  const bool clears = faulty("graphs-captured-every-step", asked, true);
  if (clears) graphs_.clear();
  if (scenario_.cuda_graph.impl == GraphImpl::partial && graphs_.empty()) capture_regions();
}

void StepLoop::train_full_iteration(std::int64_t step) {
  if (!replays(step) || !packs_.all_fit()) {
    if (replays(step)) count_fallback(packs_.reason());
    return train_passes(0, packs_.count(), false);
  }
  const int count = packs_.count();
  const GraphKey key{.kind = GraphKey::Kind::iteration,
                     .bucket = packs_.largest_bucket(),
                     .microbatches = faulty("graph-key-count-in-8-bits", count, count & 255)};
  // A capture or a dry run makes no copies, so the bytes that it counts are taken back.
  const auto body = [this] {
    std::vector<OffloadedBytes> moved;
    for (const auto& offloader : offloaders_) moved.push_back(offloader->moved);
    iteration();
    for (std::size_t i = 0; i < moved.size(); ++i) offloaders_[i]->moved = moved[i];
  };
  join_side_streams();
  if (!graphs_.has(key)) graphs_.capture(key, body);
  for (int m = 0; m < packs_.count(); ++m) loader_.wait_for(m, compute_);
  launch(key, body, compute_);
  launched_roll_ = true;
  count_copies(graphs_.ledger(key));
  for (int m = 0; m < packs_.count(); ++m) loader_.consumed(m, compute_);
  if (options_.listener != nullptr) report_iteration();
}

// Chunks share the queues of copies, so one offloader counts the copies of all.
void StepLoop::count_copies(const Ledger& graph) {
  Offloader* any = nullptr;
  for (const auto& offloader : offloaders_) {
    const std::int64_t bytes = offloader->plan().bytes();
    counters_.bytes_planned +=
        packs_.count() * faulty("iteration-plans-the-copies-of-one-chunk", bytes,
                                offloader == offloaders_.front() ? bytes : 0);
    if (!offloader->plan().empty()) any = offloader.get();
  }
  if (any != nullptr) any->count_launch(graph);
}

// A later microbatch overwrites what this one left in a slot, and chunks differ in their slots.
bool StepLoop::lies_in_its_slots(int microbatch) const {
  return std::ranges::all_of(chunks_, [&](const Chunk& chunk) {
    const int slots =
        faulty("iteration-shows-a-chunk-overwritten", chunk.slots, chunks_.front().slots);
    return microbatch + slots >= packs_.count();
  });
}

void StepLoop::report_iteration() {
  for (int m = 0; m < packs_.count(); ++m) {
    MicrobatchPass pass = pass_of(m, true, false);
    pass.bucket = packs_.largest_bucket();
    options_.listener->forward_done(m, activations(pass), lies_in_its_slots(m));
  }
  for (int m = 0; m < packs_.count(); ++m) {
    const bool is_last = m + 1 == packs_.count();
    for (const Chunk& chunk : std::views::reverse(chunks_)) {
      if (is_last) report_backward(pass_of(m, true, false, chunk.number));
    }
    if (!is_last) options_.listener->backward_done(m, {}, false);
  }
}

void StepLoop::evaluate_graph() {
  using Kind = GraphKey::Kind;
  const GraphKey key{
      .kind = faulty("evaluation-replays-the-training-graph", Kind::evaluation, Kind::iteration),
      .bucket = packs_.largest_bucket(),
      .microbatches = faulty("evaluation-graph-without-its-count", packs_.count(), 0)};
  const auto body = [this] {
    if (transfers_) transfers_->begin_graph();
    evaluation(false);
    if (transfers_) transfers_->end_graph();
  };
  join_side_streams();
  if (!graphs_.has(key)) graphs_.capture(key, body);
  launch(key, body, compute_);
  ++counters_.evaluation_replays;
  if (options_.listener == nullptr) return;
  for (int m = 0; m < packs_.count(); ++m) {
    options_.listener->evaluation_replayed(m, evaluated(pass_of(m, false, false)),
                                           lies_in_its_slots(m));
  }
}

bool StepLoop::replays_evaluation(std::int64_t step) const {
  const GraphEvaluation asked =
      faulty("evaluations-stay-eager", scenario_.cuda_graph.evaluation, GraphEvaluation::eager);
  return asked == GraphEvaluation::replay && replays(step);
}

// Launches a graph that may hold collectives. Each communicator that has some in it makes the
// launch as a call; that of the stage also where a graph of a whole evaluation holds none.
void StepLoop::launch(const GraphKey& key, const GraphSet::Body& body, const Stream& stream) {
  const bool whole = scenario_.cuda_graph.impl == GraphImpl::full_iteration;
  GraphSet::Body launched = [&] { graphs_.launch(key, body, stream); };
  if (!graphs_.has(key)) return launched();
  const Ledger& graph = graphs_.ledger(key);
  for (Communicator* ranks : {options_.experts, options_.replicas, options_.communicator}) {
    if (ranks == nullptr) continue;
    const std::int64_t held = std::ranges::count(graph.counters, &ranks->collectives),
                       of_whole = whole ? held : 0;
    const std::int64_t calls = faulty("exchange-of-a-region-launched-alone", held, of_whole);
    if (calls == 0 && !(whole && ranks == options_.communicator)) continue;
    launched = [&, ranks, inner = std::move(launched)] { ranks->launch(stream, graph, inner); };
    counters_.collectives_in_graphs += calls;
  }
  if (!transfers_ || !whole) return launched();
  counters_.collectives_in_graphs +=
      std::ranges::count(graph.counters, &transfers_->ranks().collectives);
  std::vector<std::uint64_t> documents;
  for (int m = 0; m < packs_.count(); ++m) documents.push_back(packs_.digest(m));
  transfers_->launch(graph, documents, launched);
}

}  // namespace lockstep
