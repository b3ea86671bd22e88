#include "engine/plan/hooks.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "kernels/core/fault.h"

namespace lockstep {
namespace {

bool is_forward(HookPoint point) {
  return point == HookPoint::forward_pre || point == HookPoint::forward_post;
}
bool is_pre(HookPoint point) {
  return point == HookPoint::forward_pre || point == HookPoint::backward_pre;
}

}  // namespace

void Hooks::run(int module, HookPoint point, const HookCall& call) {
  const Handlers handlers = std::exchange(attached(call.slot, module, point), {});
  run_around(
      point, [&] { run(list(module, point), module, point, call); }, handlers, call);
}

void Hooks::run_around(HookPoint point, const std::function<void()>& hooks,
                       const Handlers& handlers, const HookCall& call) {
  if (point != HookPoint::backward_post) hooks();
  for (const Hook& handler : handlers) handler(call);
  if (point == HookPoint::backward_post) hooks();
}

void Hooks::run(const List& list, int module, HookPoint point, const HookCall& call) {
  for (const Entry& hook : list) {
    if (!hook.wraps) {
      hook.run(call);
    } else if (call.training) {
      attached(call.slot, module, point_of_handler(point)).push_back(hook.run);
    }
  }
}

Hooks::List Hooks::wrappers_in(const List& list) {
  List wrappers;
  std::ranges::copy_if(list, std::back_inserter(wrappers), &Entry::wraps);
  return wrappers;
}

void Hooks::forget_handlers() {
  for (auto& modules : attached_) {
    for (auto& points : modules) points.fill({});
  }
}

// ---- Taken out ----------------------------------------------------------------------------------

ExtractedHooks::ExtractedHooks(Hooks& hooks, const std::vector<List>& lists, int slot)
    : restored_(hooks, slot) {
  std::vector<Taken>& taken = restored_.taken;
  taken.reserve(lists.size());
  for (const List& from : lists)
    taken.push_back({from, std::exchange(hooks.list(from.module, from.point), {}), {}});
  take_handlers();
}

void ExtractedHooks::take_handlers() {
  for (Taken& taken : restored_.taken) {
    const auto [module, point] = taken.from;
    taken.handlers = std::exchange(restored_.hooks.attached(restored_.slot, module, point), {});
    taken.given = taken.hooks;
  }
  for (const Taken& taken : restored_.taken) {
    if (is_forward(taken.from.point)) route_wrappers(taken);
  }
}

// Withholds the wrappers of a forward list and gives their handlers to the backward list.
void ExtractedHooks::route_wrappers(const Taken& from) {
  const Hooks::List wrappers = Hooks::wrappers_in(from.hooks), none;
  const Hooks::List& routed = *faulty("wrapper-handed-to-the-capture", &wrappers, &none);
  const Hooks::List& withheld = *faulty("wrapped-handler-runs-twice", &routed, &none);
  const auto given = [this](const List& wanted) {
    return std::ranges::find_if(restored_.taken, [&](const Taken& taken) {
      return taken.from.module == wanted.module && taken.from.point == wanted.point;
    });
  };
  const auto here = given(from.from);
  const auto there = given({from.from.module, point_of_handler(from.from.point)});
  if (!withheld.empty()) std::erase_if(here->given, [](const auto& hook) { return hook.wraps; });
  if (there == restored_.taken.end()) return;
  for (const auto& hook : routed) there->routed.push_back(hook.run);
}

ExtractedHooks::Restored::~Restored() {
  const std::size_t count = faulty("hooks-not-restored-after-capture", taken.size(), 0);
  for (Taken& one : std::span(taken).first(count)) {
    const auto [module, point] = one.from;
    hooks.list(module, point) =
        std::move(*faulty("hooks-restored-from-phase-two", &one.hooks, &one.given));
    Hooks::Handlers& waiting = hooks.attached(slot, module, point);
    waiting.insert(waiting.begin(), std::make_move_iterator(one.handlers.begin()),
                   std::make_move_iterator(one.handlers.end()));
  }
}

// ---- Around a region ----------------------------------------------------------------------------

void ExtractedHooks::run_before(const HookCall& call) { run(true, call); }
void ExtractedHooks::run_after(const HookCall& call) { run(false, call); }

void ExtractedHooks::run(bool before, const HookCall& call) {
  Hooks& hooks = restored_.hooks;
  for (Taken& taken : restored_.taken) {
    const auto [module, point] = taken.from;
    if (is_pre(point) != before) continue;
    const Hooks::Handlers handlers = std::exchange(taken.handlers, {});
    Hooks::run_around(
        point, [&, module = module, point = point] { hooks.run(taken.hooks, module, point, call); },
        handlers, call);
  }
}

void ExtractedHooks::run_given(HookPoint point, const HookCall& call) {
  for (const Taken& taken : restored_.taken) {
    if (taken.from.point != point) continue;
    Hooks::run_around(
        point, [&] { restored_.hooks.run(taken.given, taken.from.module, point, call); },
        taken.routed, call);
  }
}

}  // namespace lockstep
