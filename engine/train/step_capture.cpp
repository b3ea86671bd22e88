// Captures of partial graphs, and the passes that run before each.
#include "engine/train/step_loop.h"
#include "kernels/core/fault.h"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {

void StepLoop::capture_regions() {
  const int buckets = static_cast<int>(scenario_.cuda_graph.max_packed_seqs.size());
  for (int bucket = 0; bucket < buckets; ++bucket) capture_bucket(bucket, chunks_);
}

void StepLoop::capture_bucket(int bucket, std::span<const Chunk> chunks) {
  set_aside();
  try {
    for (const Chunk& chunk : chunks) capture_graphs_of(bucket, chunk);
  } catch (...) {
    try {
      put_back();
    } catch (...) {  // The first failure is the one that is reported.
    }
    throw;
  }
  put_back();
}

void StepLoop::capture_graphs_of(int bucket, const Chunk& chunk) {
  for (int slot = 0; slot < chunk.slots; ++slot) {
    for (const Segment& segment : segments_of(chunk)) {
      if (segment.region >= 0) capture_region(segment, pass_of_capture(chunk, slot, bucket, true));
    }
  }
  if (scenario_.cuda_graph.evaluation != GraphEvaluation::replay) return;
  const bool training = faulty("evaluation-graphs-captured-for-training", false, true);
  for (const Segment& segment : segments_of(chunk)) {
    if (segment.region >= 0)
      capture_evaluation(segment, pass_of_capture(chunk, 0, bucket, training));
  }
}

std::span<const Segment> StepLoop::segments_of(const Chunk& chunk) const {
  return std::span(segments_).subspan(chunk.first_segment, chunk.end_segment - chunk.first_segment);
}

StepLoop::MicrobatchPass StepLoop::pass_of_capture(const Chunk& chunk, int slot, int bucket,
                                                   bool training) const {
  return {.chunk = chunk.number,
          .microbatch = slot,
          .slot = chunk.first_slot + slot,
          .bucket = bucket,
          .training = training,
          .replay = true};
}

// The passes of an evaluation follow each other, so one slot of a chunk serves all.
void StepLoop::capture_evaluation(const Segment& segment, const MicrobatchPass& pass) {
  const ExtractedHooks hooks(hooks_, hooks_of(segment, true));
  graphs_.capture({.kind = GraphKey::Kind::evaluation,
                   .region = segment.region,
                   .slot = pass.slot,
                   .bucket = pass.bucket,
                   .chunk = pass.chunk},
                  [&] { run_parts(pass, segment, true); });
}

// A capture runs nothing and needs no gathered weights, so the hooks are taken out meanwhile.
void StepLoop::capture_region(const Segment& segment, const MicrobatchPass& pass) {
  ExtractedHooks hooks(hooks_, hooks_around(segment), pass.slot);
  run_capture_passes(pass, segment, hooks);
  for (const bool forward : {true, false}) {
    graphs_.capture({.kind = forward ? GraphKey::Kind::forward : GraphKey::Kind::backward,
                     .region = segment.region,
                     .slot = pass.slot,
                     .bucket = pass.bucket,
                     .chunk = pass.chunk},
                    [&] { run_parts(pass, segment, forward); });
  }
}

// The hooks of both passes of the region's unit, whose weights its passes read. Without units there
// are no hooks.
std::vector<ExtractedHooks::List> StepLoop::hooks_around(const Segment& segment) const {
  if (!sharder_) return {};
  const Unit& unit = at(layout_->units, sharder_->unit_of(segment.parts.front().layer));
  return hooks_of_layers(unit.first_layer, unit.first_layer + unit.layers);
}

// ---- Passes of a capture ------------------------------------------------------------------------

std::int64_t StepLoop::most_set_aside() const {
  const std::int64_t weights = sharder_ ? sharder_->most_set_aside() : 0;
  return bytes_of(parameters_.accumulators()) + bytes_of(counts_of(model_->expert_states())) +
         bytes_of(pending_amaxes()) + weights;
}

std::vector<MemoryRange> StepLoop::pending_amaxes() const {
  const bool keeps = faulty("fp8-capture-passes-record", is_delayed(), false);
  if (!keeps) return {};
  return {range_of(parameters_.pending().own)};
}

static void append(std::vector<MemoryRange>& all, const std::vector<MemoryRange>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void StepLoop::set_aside() {
  if (!capture_passes_) return;
  const std::vector<MemoryRange> none, weights = sharder_ ? sharder_->set_aside() : none;
  const std::vector<MemoryRange> gradients = parameters_.accumulators();
  std::vector<MemoryRange> all;
  append(all, *faulty("capture-passes-leave-a-gathered-unit", &weights, &none));
  append(all, *faulty("capture-passes-leave-their-gradients", &gradients, &none));
  append_counts(all);
  append(all, pending_amaxes());
  capture_passes_->keep(all);
}

void StepLoop::append_counts(std::vector<MemoryRange>& all) const {
  const std::vector<MemoryRange> counts = counts_of(model_->expert_states()), none;
  append(all, *faulty("capture-passes-leave-their-counts", &counts, &none));
}

void StepLoop::put_back() {
  if (!capture_passes_) return;
  device_.place.part = "capture";
  if (sharder_) sharder_->await_gradients();
  capture_passes_->put_back();
  if (sharder_) sharder_->put_back();
  for (int slot = 0; slot < model_->slots(); ++slot) model_->poison(slot);
  if (shared_) shared_->poison(compute_);
  model_->poison_gradients();
  if (transfers_) transfers_->release_all();
  parameters_.poison_microbatch_gradients(compute_);
}

void StepLoop::run_capture_passes(const MicrobatchPass& captured, const Segment& segment,
                                  ExtractedHooks& hooks) {
  if (!capture_passes_) return;
  MicrobatchPass pass = captured;
  pass.replay = false;
  pass.copies = false;
  const PassContext context = this->context(pass);
  device_.place.before_capture = true;
  build_metadata(context, capture_passes_->table());
  device_.place.before_capture = false;
  const std::int64_t count =
      faulty("capture-passes-left-out", scenario_.cuda_graph.capture_passes, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    context.part("capture");
    model_->fill_input(compute_, segment, pass.slot, capture_passes_->ones());
    run_capture_pass(pass, segment, true, hooks);
    context.part("capture");
    model_->fill_gradients(compute_, segment, pass.slot, capture_passes_->ones());
    run_capture_pass(pass, segment, false, hooks);
  }
}

// No pass of a capture is the last of a step.
void StepLoop::run_capture_pass(const MicrobatchPass& pass, const Segment& segment, bool forward,
                                ExtractedHooks& hooks) {
  const HookCall call{.microbatch = pass.microbatch, .slot = pass.slot};
  if (sharder_) sharder_->begin_unit(sharder_->unit_of(segment.parts.front().layer));
  hooks.run_given(forward ? HookPoint::forward_pre : HookPoint::backward_pre, call);
  device_.place.before_capture = true;
  run_parts(pass, segment, forward);
  device_.place.before_capture = false;
  hooks.run_given(forward ? HookPoint::forward_post : HookPoint::backward_post, call);
  if (sharder_) sharder_->end_unit();
  ++counters_.capture_passes;
}

}  // namespace lockstep
