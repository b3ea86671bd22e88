#include "engine/fsdp/sharder.h"

#include <algorithm>
#include <utility>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {

Sharder::Sharder(const Stream& compute, const ShardCommunicators& communicators,
                 const Scenario& scenario, const ShardLayout& layout, Parameters& parameters)
    : communicator_(communicators.stage),
      layout_(layout),
      tied_(scenario.model.tied_embedding),
      modules_{static_cast<int>(scenario.model.pattern.size())},
      persistent_buffers_(std::ssize(plan_gradients(layout, scenario.fsdp).persistent)),
      weights_(compute, communicators, scenario.fsdp, layout, parameters),
      gradients_(compute, weights_.stream(), communicators, scenario.fsdp, layout, parameters) {}

void Sharder::attach(Hooks& hooks, bool has_head) {
  for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
    const Unit& u = at(layout_.units, unit);
    switch (u.kind) {
      case Unit::Kind::embedding:
        attach_unit(hooks, unit, Modules::embedding(), Modules::embedding(), has_head);
        break;
      case Unit::Kind::blocks:
        attach_unit(hooks, unit, Modules::layer(u.first_layer),
                    Modules::layer(u.first_layer + u.layers - 1), has_head);
        break;
      case Unit::Kind::head:
        attach_unit(hooks, unit, modules_.head(), modules_.head(), has_head);
    }
  }
}

// The hooks ahead of and behind a backward pass are handlers that the forward hooks attach, as FSDP
// has them: on the output of the unit's last module, and on the input of its first one.
void Sharder::attach_unit(Hooks& hooks, int unit, int first, int last, bool has_head) {
  const auto gather = [this, unit](const HookCall&) { weights_.enter(unit); };
  const auto release = [this, unit](const HookCall&) { weights_.leave(unit); };
  hooks.add(first, HookPoint::forward_pre, gather);
  using At = std::pair<int, HookPoint>;
  const auto [module, point] =
      faulty("released-before-the-forward-pass", At(last, HookPoint::forward_post),
             At(first, HookPoint::forward_pre));
  hooks.add(module, point, release);
  hooks.wrap(last, HookPoint::forward_post, gather);
  hooks.wrap(first, HookPoint::forward_pre, release);
  // The head's backward pass begins the gradient of a tied embedding, and the embedding's backward
  // pass completes it. Between chunks and stages its part is kept.
  const bool begun_by_head = tied_ && has_head && first == Modules::embedding();
  hooks.add(begun_by_head ? modules_.head() : last, HookPoint::backward_pre,
            [this, unit](const HookCall&) { gradients_.enter(unit); });
  hooks.add(first, HookPoint::backward_post,
            [this, unit](const HookCall& call) { gradients_.leave(unit, call.last); });
}

static bool is_in(const Unit& unit, const Chunk& chunk) {
  switch (unit.kind) {
    case Unit::Kind::embedding:
      return chunk.is_first;
    case Unit::Kind::blocks:
      return chunk.has(unit.first_layer);
    case Unit::Kind::head:
      return chunk.is_last;
  }
  return false;
}

void Sharder::prefetch(const Chunk& first) {
  weights_.prefetch(static_cast<int>(
      std::ranges::count_if(layout_.units, [&](const Unit& unit) { return is_in(unit, first); })));
}

void Sharder::begin(const std::vector<Pass>& passes, const std::vector<Chunk>& chunks) {
  std::vector<int> uses;
  const int units = static_cast<int>(layout_.units.size());
  for (const Pass& pass : passes) {
    for (int i = 0; i < units; ++i) {
      const int unit = pass.forward ? i : units - 1 - i;
      if (is_in(at(layout_.units, unit), at(chunks, pass.chunk))) uses.push_back(unit);
    }
  }
  weights_.begin(std::move(uses));
}

void Sharder::end(Passes passes) {
  weights_.end();
  if (passes == Passes::some) gradients_.finish();
}

std::vector<MemoryRange> Sharder::set_aside() {
  gradients_.finish();
  return weights_.set_aside();
}

int Sharder::unit_of(int layer) const {
  const auto& units = layout_.units;
  const auto holds = [=](const Unit& unit) {
    return unit.kind == Unit::Kind::blocks && layer >= unit.first_layer &&
           layer < unit.first_layer + unit.layers;
  };
  return static_cast<int>(std::ranges::find_if(units, holds) - units.begin());
}

void Sharder::append_addresses(std::vector<const void*>& table) const {
  weights_.append_addresses(table);
  gradients_.append_addresses(table);
}

}  // namespace lockstep
