#include "engine/plan/hooks.h"

#include <span>
#include <utility>

#include "kernels/core/fault.h"

namespace lockstep {

ExtractedHooks::ExtractedHooks(Hooks& hooks, const std::vector<List>& lists) : hooks_(hooks) {
  taken_.reserve(lists.size());
  for (const List& from : lists)
    taken_.push_back({from, std::exchange(hooks_.list(from.module, from.point), {})});
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    const HookPoint point = taken_[i].from.point;
    const bool pre = point == HookPoint::forward_pre || point == HookPoint::backward_pre;
    (pre ? before_ : after_).push_back(i);
  }
}

ExtractedHooks::~ExtractedHooks() {
  const std::size_t restored = faulty("hooks-not-restored-after-capture", taken_.size(), 0);
  for (Taken& taken : std::span(taken_).first(restored))
    hooks_.list(taken.from.module, taken.from.point) = std::move(taken.hooks);
}

void ExtractedHooks::run(const std::vector<std::size_t>& order, const HookCall& call) const {
  for (const std::size_t i : order) {
    for (const Hooks::Hook& hook : taken_[i].hooks) hook(call);
  }
}

}  // namespace lockstep
