#include <algorithm>
#include <utility>

#include "engine/train/step_loop.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {

StepLoop::MicrobatchPass StepLoop::pass_of(int microbatch, bool training, bool replay,
                                           int chunk) const {
  return {.chunk = chunk,
          .microbatch = microbatch,
          .slot = at(chunks_, chunk).slot_of(microbatch),
          .bucket = packs_.bucket(microbatch),
          .training = training,
          .replay = replay && packs_.fits(microbatch)};
}

PassContext StepLoop::context(const MicrobatchPass& pass) {
  device_.place.microbatch = pass.microbatch;
  const std::int64_t overflow = pass.bucket < 0 ? loader_.overflow_capacity(pass.microbatch) : 0;
  return {compute_,
          model_->pack(pass.slot, pass.bucket, overflow),
          loader_.state(pass.training),
          pass.training,
          model_->workspace(),
          model_->codes(),
          exponent_rule(pass.training ? Passes::training : Passes::evaluation),
          pass.microbatch == 0};
}

HookCall StepLoop::hook_call(const MicrobatchPass& pass) const {
  const std::int64_t baked = scenario_.training.microbatches;
  const std::int64_t count =
      faulty("reduced-behind-the-first-count", std::int64_t{packs_.count()}, baked);
  return {.microbatch = pass.microbatch,
          .last = pass.microbatch + 1 == count,
          .slot = pass.slot,
          .training = pass.training};
}

void StepLoop::run_hooks(int module, HookPoint point, const MicrobatchPass& pass) {
  // A capture's pass may be of a microbatch that this step does not have.
  const bool is_empty = point == HookPoint::backward_post && pass.microbatch < packs_.count() &&
                        packs_.tokens_in(pass.microbatch) == 0;
  const bool left_out = faulty("no-reduction-without-documents", false, is_empty);
  if (left_out) return;
  hooks_.run(module, point, hook_call(pass));
}

std::optional<StepLoop::MicrobatchPass::Prefetch> StepLoop::prefetch_in(
    const std::vector<Pass>& passes, std::size_t i) const {
  if (i + 1 == passes.size()) return {};
  Offloader& next = *at(offloaders_, passes[i + 1].chunk);
  const std::optional<int> slot = next.plan().slot_to_come(passes, i);
  if (!slot) return {};
  return MicrobatchPass::Prefetch{&next, *slot};
}

void StepLoop::prefetch(const MicrobatchPass& pass, const OffloadPlan& plan, int step) {
  const std::optional<int> behind = plan.steps_behind(step);
  if (pass.prefetch && behind) pass.prefetch->offloader->prefetch(*behind, pass.prefetch->slot);
}

void StepLoop::forward(const MicrobatchPass& pass) {
  const PassContext context = this->context(pass);
  const bool again = faulty("fp8-weights-quantised-in-every-pass", false, true);
  if (again) quantise_weights(pass.training ? Passes::training : Passes::evaluation);
  await_sent(pass, -1);
  if (poisons_padding_) {
    context.part("padding");
    model_->poison(pass.slot);
  }
  before_step(pass, -1);
  build_metadata(context, loader_.table(pass.microbatch, pass.bucket < 0));
  Offloader& copies = offloader(pass);
  const int slot = slot_in_chunk(pass), first = chunk_of(pass).first_segment;
  copies.enter_forward(-1, slot);
  begin_forward(context, pass);
  const int end = copies.plan().segments;
  for (int i = 0; i < end; ++i) {
    prefetch(pass, copies.plan(), i);
    copies.enter_forward(i, slot);
    before_step(pass, i);
    await_sent(pass, i);
    run_segment(pass, at(segments_, first + i), true);
    const bool was_read = transfers_ && !pass.training && ends_first_layer(pass, i);
    if (was_read) transfers_->release(pass.slot);
    behind_step(pass, i);
    if (pass.training) copies.leave_forward(i, slot);
  }
  if (transfers_ && !chunk_of(pass).is_last)
    transfers_->send_output(chunk_of(pass), transfer_of(pass), model_->output(sent_slot(pass)));
  keep_router_losses(pass);
  prefetch(pass, copies.plan(), end);
  end_forward(context, pass);
  if (pass.training) copies.leave_forward(end, slot);
}

// The output of an evaluation's earlier pass in this slot may still be on its way to the next
// stage. A graph waits where this one's is written, by poison or by the last layer.
void StepLoop::await_sent(const MicrobatchPass& pass, int segment) {
  if (!transfers_ || pass.training || chunk_of(pass).is_last) return;
  const bool at_once = device_.recording() < 0 || poisons_padding_;
  const int writes = at_once ? -1 : offloader(pass).plan().segments - 1;
  if (segment == writes) transfers_->await_sent(chunk_of(pass), pass.microbatch);
}

// Behind that nothing of an evaluation reads the chunk's input.
bool StepLoop::ends_first_layer(const MicrobatchPass& pass, int segment) const {
  const Chunk& chunk = chunk_of(pass);
  return std::ranges::any_of(
      at(segments_, chunk.first_segment + segment).parts,
      [&](const Part& part) { return part.layer == chunk.first_layer && part.end == Stage::end; });
}

void StepLoop::begin_forward(const PassContext& context, const MicrobatchPass& pass) {
  const Chunk& chunk = chunk_of(pass);
  if (transfers_ && !chunk.is_first) {
    context.part("chunk input");
    // Memory that other tensors had is free behind what compute has waited for.
    if (poisons_padding_ || offloader(pass).plan().moves_input()) transfers_->release(pass.slot);
    return transfers_->receive_input(chunk, pass.slot, transfer_of(pass), model_->input(pass.slot));
  }
  if (!chunk.is_first) {
    // An evaluation by graphs has one slot of each chunk.
    const Chunk& before = at(chunks_, chunk.number - 1);
    const bool one_slot = !pass.training && pass.replay;
    const int from = one_slot ? before.first_slot : before.slot_of(pass.microbatch);
    return model_->hand_on(context, from, pass.slot);
  }
  run_hooks(Modules::embedding(), HookPoint::forward_pre, pass);
  model_->embed(context, loader_.inputs(pass.microbatch), pass.slot);
  behind_step(pass, -1);
  run_hooks(Modules::embedding(), HookPoint::forward_post, pass);
}

void StepLoop::end_forward(const PassContext& context, const MicrobatchPass& pass) {
  const int head = offloader(pass).plan().segments;
  if (!chunk_of(pass).is_last) return behind_step(pass, head);
  run_hooks(modules_.head(), HookPoint::forward_pre, pass);
  before_step(pass, head);
  model_->head(context, loader_.inputs(pass.microbatch), pass.slot,
               losses_.columns(pass.microbatch, 1));
  behind_step(pass, head);
  run_hooks(modules_.head(), HookPoint::forward_post, pass);
}

// For a planted fault: a graph sends what the microbatch before has left.
int StepLoop::sent_slot(const MicrobatchPass& pass) const {
  const bool follows = device_.recording() >= 0 && pass.microbatch > 0;
  const int before = follows ? chunk_of(pass).slot_of(pass.microbatch - 1) : pass.slot;
  return faulty("captured-output-of-the-microbatch-before", pass.slot, before);
}

Transfers::Of StepLoop::transfer_of(const MicrobatchPass& pass) const {
  return {pass.microbatch, packs_.digest(pass.microbatch)};
}

void StepLoop::before_step(const MicrobatchPass& pass, int step) {
  if (!poisons_padding_ || !shared_) return;
  const StepLocationScope scope(device_, -1, "padding");
  shared_->poison_written(compute_, time_line_.step(pass.chunk, step), pass.slot);
}

void StepLoop::behind_step(const MicrobatchPass& pass, int step) {
  if (passing_.empty()) return;
  const StepLocationScope scope(device_, -1, "observed");
  passing_.copy(compute_, time_line_.step(pass.chunk, step), pass.slot);
}

void StepLoop::build_metadata(const PassContext& context, const DocumentTable& table) {
  context.part("metadata");
  const PackedBatch& pack = context.pack;
  compute_.submit(build_pack(model_->pack_shape(), table, pack));
  if (pack.cudnn) compute_.submit(build_cudnn_tables(scenario_.model.attention, pack));
}

// The losses lie in the slot, which a later microbatch takes.
void StepLoop::keep_router_losses(const MicrobatchPass& pass) {
  if (!router_losses_) return;
  const int row = faulty("router-losses-kept-by-slot", pass.microbatch, slot_in_chunk(pass));
  float* const all = router_losses_.data + row * router_losses_.pitch;
  for (const ExpertState& state : model_->expert_states()) {
    float* const own = all + 2 * state.number;
    if (!chunk_of(pass).has(state.layer)) continue;
    const Tensor<float> from = model_->router_losses(pass.slot, state.layer);
    compute_.copy(own, from.data, 2 * sizeof(float), CopyKind::device_to_device);
  }
}

void StepLoop::backward(const MicrobatchPass& pass) {
  const PassContext context = this->context(pass);
  Offloader& copies = offloader(pass);
  const int slot = slot_in_chunk(pass), first = chunk_of(pass).first_segment;
  const int end = copies.plan().segments;
  copies.enter_backward(end, slot);
  prefetch(pass, copies.plan(), copies.plan().backward_step(end));
  begin_backward(context, pass);
  for (int i = end - 1; i >= 0; --i) {
    const int step = copies.plan().backward_step(i);
    copies.enter_backward(i, slot);
    prefetch(pass, copies.plan(), step);
    before_step(pass, step);
    run_segment(pass, at(segments_, first + i), false);
  }
  end_backward(context, pass);
}

void StepLoop::begin_backward(const PassContext& context, const MicrobatchPass& pass) {
  if (transfers_ && !chunk_of(pass).is_last) {
    context.part("chunk gradient");
    transfers_->receive_gradient(chunk_of(pass), pass.slot, transfer_of(pass),
                                 model_->output_gradient(pass.slot));
  }
  if (!chunk_of(pass).is_last) return;
  const OffloadPlan& plan = offloader(pass).plan();
  run_hooks(modules_.head(), HookPoint::backward_pre, pass);
  before_step(pass, plan.backward_step(plan.segments));
  model_->head_backward(context, loader_.inputs(pass.microbatch), pass.slot);
  if (transfers_ && scenario_.model.tied_embedding) transfers_->note_weight_read();
  if (!transfers_) {
    model_->keep_head_gradient(context, chunks_.front().slot_of(pass.microbatch));
  } else if (model_->sends_head_gradients()) {
    transfers_->send_head_gradient(transfer_of(pass),
                                   model_->hold_head_gradient(context, pass.microbatch));
  }
  run_hooks(modules_.head(), HookPoint::backward_post, pass);
}

void StepLoop::end_backward(const PassContext& context, const MicrobatchPass& pass) {
  const Chunk& chunk = chunk_of(pass);
  if (transfers_ && !chunk.is_first) {
    transfers_->release(pass.slot);
    return transfers_->send_gradient(chunk, transfer_of(pass),
                                     model_->hold_gradient(context, pass.slot, pass.microbatch));
  }
  if (!chunk.is_first) {
    const Chunk& before = at(chunks_, chunk.number - 1);
    const int m = faulty("chunk-gradient-to-the-next-slot", pass.microbatch, pass.microbatch + 1);
    return model_->hand_back(context, pass.slot, before.slot_of(m));
  }
  run_hooks(Modules::embedding(), HookPoint::backward_pre, pass);
  if (transfers_ && scenario_.model.tied_embedding) {
    context.part("embedding");
    transfers_->receive_head_gradient(pass.slot, transfer_of(pass),
                                      model_->head_gradient(pass.slot));
  }
  const bool takes = faulty("head-gradient-of-a-microbatch-lost", true, pass.microbatch != 1);
  if (takes) model_->take_head_gradient(context, pass.slot);
  model_->embed_backward(context, loader_.inputs(pass.microbatch), pass.slot);
  if (transfers_) transfers_->release(pass.slot);
  run_hooks(Modules::embedding(), HookPoint::backward_post, pass);
}

static void run_hooks_after(ExtractedHooks& hooks, const HookCall& call) {
  const bool run = faulty("hooks-behind-a-replay-forgotten", true, false);
  if (run) hooks.run_after(call);
}

static GraphKey::Kind graph_kind(bool training, bool forward) {
  using Kind = GraphKey::Kind;
  const Kind trained = forward ? Kind::forward : Kind::backward;
  const Kind evaluated =
      faulty("evaluations-replay-the-training-graphs", Kind::evaluation, trained);
  return training ? trained : evaluated;
}

static int region_of(const Segment& segment) {
  return faulty("graphs-of-64-regions", segment.region, segment.region & 63);
}

bool StepLoop::holds_copies(const MicrobatchPass& pass, const RegionPass& region) const {
  const bool holds = pass.training && offloader(pass).holds_copies(region);
  return faulty("graphs-of-later-chunks-launched-alone", holds,
                holds && chunk_of(pass).is_first_of_stage);
}

void StepLoop::run_segment(const MicrobatchPass& pass, const Segment& segment, bool forward) {
  const auto body = [&] { run_parts(pass, segment, forward); };
  if (segment.region < 0 || !pass.replay) return body();
  const GraphKey key{.kind = graph_kind(pass.training, forward),
                     .region = region_of(segment),
                     .slot = faulty("graph-key-without-slot", pass.slot, chunk_of(pass).first_slot),
                     .bucket = faulty("graph-key-without-bucket", pass.bucket, 0),
                     .chunk = pass.chunk};
  ExtractedHooks hooks(hooks_, hooks_of(segment, forward), pass.slot);
  hooks.run_before(hook_call(pass));
  const RegionPass region = region_pass(pass, segment, forward);
  if (holds_copies(pass, region)) {
    offloader(pass).launch(region, graphs_.ledger(key),
                           [&](const Stream& stream) { launch(key, body, stream); });
  } else {
    launch(key, body, compute_);
  }
  if (!pass.training) ++counters_.evaluation_replays;
  run_hooks_after(hooks, hook_call(pass));
}

RegionPass StepLoop::region_pass(const MicrobatchPass& pass, const Segment& segment,
                                 bool forward) const {
  return {.segment = static_cast<int>(&segment - segments_.data()) - chunk_of(pass).first_segment,
          .slot = slot_in_chunk(pass),
          .forward = forward};
}

void StepLoop::run_parts(const MicrobatchPass& pass, const Segment& segment, bool forward) {
  const PassContext context = this->context(pass);
  const RegionPass region = region_pass(pass, segment, forward);
  Offloader& offloader = this->offloader(pass);
  const bool copies =
      offloader.plan().captured && pass.training && pass.copies && segment.region >= 0;
  if (copies) offloader.begin_region(region);
  const std::int64_t count = std::ssize(segment.parts);
  for (std::int64_t i = 0; i < count; ++i) {
    const Part& part = at(segment.parts, forward ? i : count - 1 - i);
    for (const auto& [module, point] : hooks_before(part, forward)) run_hooks(module, point, pass);
    if (copies) offloader.before_layer(region, part.layer);
    forward ? model_->forward(context, part, pass.slot)
            : model_->backward(context, part, pass.slot);
    if (copies) offloader.after_layer(region, part.layer);
    for (const auto& [module, point] : hooks_after(part, forward)) run_hooks(module, point, pass);
  }
  if (copies) offloader.end_region(region);
}

}  // namespace lockstep
