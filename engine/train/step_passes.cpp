#include "engine/train/step_loop.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {

StepLoop::MicrobatchPass StepLoop::pass_of(int microbatch, bool training, bool replay) const {
  return {.microbatch = microbatch,
          .slot = microbatch % model_->slots(),
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
          exponent_rule(pass.training ? Passes::training : Passes::evaluation)};
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

void StepLoop::forward(const MicrobatchPass& pass) {
  const PassContext context = this->context(pass);
  const MicrobatchInputs& inputs = loader_.inputs(pass.microbatch);
  const bool again = faulty("fp8-weights-quantised-in-every-pass", false, true);
  if (again) quantise_weights(pass.training ? Passes::training : Passes::evaluation);
  if (poisons_padding_) {
    context.part("padding");
    model_->poison(pass.slot);
  }
  before_step(pass, -1);
  build_metadata(context, loader_.table(pass.microbatch, pass.bucket < 0));
  offloader_.enter_forward(-1, pass.slot);
  run_hooks(Modules::embedding(), HookPoint::forward_pre, pass);
  model_->embed(context, inputs, pass.slot);
  behind_step(pass, -1);
  run_hooks(Modules::embedding(), HookPoint::forward_post, pass);
  const int head = offloader_.plan().segments;
  for (int i = 0; i < head; ++i) {
    if (pass.prefetch) offloader_.prefetch(i, *pass.prefetch);
    offloader_.enter_forward(i, pass.slot);
    before_step(pass, i);
    run_segment(pass, at(segments_, i), true);
    behind_step(pass, i);
    if (pass.training) offloader_.leave_forward(i, pass.slot);
  }
  keep_router_losses(pass);
  if (pass.prefetch) offloader_.prefetch(head, *pass.prefetch);
  run_hooks(modules_.head(), HookPoint::forward_pre, pass);
  before_step(pass, head);
  model_->head(context, inputs, pass.slot, losses_.columns(pass.microbatch, 1));
  behind_step(pass, head);
  run_hooks(modules_.head(), HookPoint::forward_post, pass);
  if (pass.training) offloader_.leave_forward(head, pass.slot);
}

void StepLoop::before_step(const MicrobatchPass& pass, int step) {
  if (!poisons_padding_ || !shared_) return;
  const StepLocationScope scope(device_, -1, "padding");
  shared_->poison_written(compute_, step, pass.slot);
}

void StepLoop::behind_step(const MicrobatchPass& pass, int step) {
  if (passing_.empty()) return;
  const StepLocationScope scope(device_, -1, "observed");
  passing_.copy(compute_, step, pass.slot);
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
  const int row = faulty("router-losses-kept-by-slot", pass.microbatch, pass.slot);
  float* to = router_losses_.data + row * router_losses_.pitch;
  for (const ExpertState& state : model_->expert_states()) {
    const Tensor<float> from = model_->router_losses(pass.slot, state.layer);
    compute_.copy(to, from.data, 2 * sizeof(float), CopyKind::device_to_device);
    to += 2;
  }
}

void StepLoop::backward(const MicrobatchPass& pass) {
  const PassContext context = this->context(pass);
  const MicrobatchInputs& inputs = loader_.inputs(pass.microbatch);
  const int head = offloader_.plan().segments;
  offloader_.enter_backward(head, pass.slot);
  run_hooks(modules_.head(), HookPoint::backward_pre, pass);
  before_step(pass, offloader_.plan().backward_step(head));
  model_->head_backward(context, inputs, pass.slot);
  run_hooks(modules_.head(), HookPoint::backward_post, pass);
  for (int i = head - 1; i >= 0; --i) {
    offloader_.enter_backward(i, pass.slot);
    before_step(pass, offloader_.plan().backward_step(i));
    run_segment(pass, at(segments_, i), false);
  }
  run_hooks(Modules::embedding(), HookPoint::backward_pre, pass);
  model_->embed_backward(context, inputs, pass.slot);
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

void StepLoop::run_segment(const MicrobatchPass& pass, const Segment& segment, bool forward) {
  const auto body = [&] { run_parts(pass, segment, forward); };
  if (segment.region < 0 || !pass.replay) return body();
  const GraphKey key{.kind = graph_kind(pass.training, forward),
                     .region = region_of(segment),
                     .slot = faulty("graph-key-without-slot", pass.slot, 0),
                     .bucket = faulty("graph-key-without-bucket", pass.bucket, 0)};
  ExtractedHooks hooks(hooks_, hooks_of(segment, forward), pass.slot);
  hooks.run_before(hook_call(pass));
  const RegionPass region = region_pass(pass, segment, forward);
  if (pass.training && offloader_.holds_copies(region)) {
    offloader_.launch(region, graphs_.ledger(key),
                      [&](const Stream& stream) { graphs_.launch(key, body, stream); });
  } else {
    graphs_.launch(key, body);
  }
  if (!pass.training) ++counters_.evaluation_replays;
  run_hooks_after(hooks, hook_call(pass));
}

RegionPass StepLoop::region_pass(const MicrobatchPass& pass, const Segment& segment,
                                 bool forward) const {
  return {.segment = static_cast<int>(&segment - segments_.data()),
          .slot = pass.slot,
          .forward = forward};
}

void StepLoop::run_parts(const MicrobatchPass& pass, const Segment& segment, bool forward) {
  const PassContext context = this->context(pass);
  const RegionPass region = region_pass(pass, segment, forward);
  const bool copies =
      offloader_.plan().captured && pass.training && pass.copies && segment.region >= 0;
  if (copies) offloader_.begin_region(region);
  const std::int64_t count = std::ssize(segment.parts);
  for (std::int64_t i = 0; i < count; ++i) {
    const Part& part = at(segment.parts, forward ? i : count - 1 - i);
    for (const auto& [module, point] : hooks_before(part, forward)) run_hooks(module, point, pass);
    if (copies) offloader_.before_layer(region, part.layer);
    forward ? model_->forward(context, part, pass.slot)
            : model_->backward(context, part, pass.slot);
    if (copies) offloader_.after_layer(region, part.layer);
    for (const auto& [module, point] : hooks_after(part, forward)) run_hooks(module, point, pass);
  }
  if (copies) offloader_.end_region(region);
}

}  // namespace lockstep
