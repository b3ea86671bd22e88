// Ordered lists of calls that run around the modules of a model, four for each module. Sharded
// weights are gathered and released there, and gradients are reduced. A forward hook may also wrap
// what it is given with a backward handler, which runs once, in the backward pass of the same
// microbatch. If the body of a module is in a graph, its hooks stay outside: they are removed while
// the region is captured, recorded or replayed, and run around the region in the order that they
// have eagerly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

enum class HookPoint : std::uint8_t { forward_pre, forward_post, backward_pre, backward_post };

// Where the handler runs that a forward hook attaches: one on a module's input runs behind the
// module's backward pass, and one on its output ahead of it.
constexpr HookPoint point_of_handler(HookPoint wrapper) {
  return wrapper == HookPoint::forward_pre ? HookPoint::backward_post : HookPoint::backward_pre;
}

// The arguments of a hook.
struct HookCall {
  int microbatch = 0;
  bool last = false;  // The last microbatch of the step: its backward pass completes the gradients.
  int slot = 0;       // The one that the microbatch has between its two passes.
  bool training = true;  // In an evaluation nothing is wrapped: no backward pass follows.
};

class Hooks {
 public:
  using Hook = std::function<void(const HookCall&)>;

  // Between their two passes microbatches are told apart by their slots.
  explicit Hooks(int modules, int slots = 1) : lists_(modules), attached_(slots) {
    for (auto& handlers : attached_) handlers.resize(modules);
  }
  void add(int module, HookPoint point, Hook hook) {
    list(module, point).push_back({.run = std::move(hook), .wraps = false});
  }
  // Adds a forward hook that wraps the module's input (forward_pre) or output (forward_post) with
  // `handler`.
  void wrap(int module, HookPoint point, Hook handler) {
    list(module, point).push_back({.run = std::move(handler), .wraps = true});
  }
  std::size_t count(int module, HookPoint point) const {
    return at(at(lists_, module), point).size();
  }
  // Handlers are nearer to the module than its other hooks.
  void run(int module, HookPoint point, const HookCall& call);
  // A step that failed may have left handlers whose backward pass never came.
  void forget_handlers();

 private:
  friend class ExtractedHooks;
  struct Entry {
    Hook run;    // The hook, or the handler that it attaches.
    bool wraps;  // With a handler.
  };
  using List = std::vector<Entry>;
  using Handlers = std::vector<Hook>;
  List& list(int module, HookPoint point) { return at(at(lists_, module), point); }
  Handlers& attached(int slot, int module, HookPoint point) {
    return at(at(at(attached_, slot), module), point);
  }
  void run(const List& list, int module, HookPoint point, const HookCall& call);
  static List wrappers_in(const List& list);
  static void run_around(HookPoint point, const std::function<void()>& hooks,
                         const Handlers& handlers, const HookCall& call);

  std::vector<std::array<List, 4>> lists_;
  // By slot, module and point: handlers that wait for the backward pass of a microbatch.
  std::vector<std::vector<std::array<Handlers, 4>>> attached_;
};

// The hooks of a region while it is captured, recorded or replayed; the destructor always restores
// them, even if extraction throws.
class ExtractedHooks {
 public:
  struct List {
    int module;
    HookPoint point;
  };
  // Lists the hooks in the order in which the region runs them. They are taken out in two phases.
  // The first takes the lists as they are and empties them; these copies are what is restored. The
  // second sorts out wrapped handlers: those of wrappers among the forward hooks, and those that
  // wait for the backward pass of the microbatch in `slot`.
  ExtractedHooks(Hooks& hooks, const std::vector<List>& lists, int slot = 0);
  ExtractedHooks(const ExtractedHooks&) = delete;
  ExtractedHooks& operator=(const ExtractedHooks&) = delete;

  // Around a replay, in the order of an eager pass. A wrapper wraps what the graph is given or
  // gives.
  void run_before(const HookCall& call);
  void run_after(const HookCall& call);

  // Around a pass of a capture routine, which wraps nothing: no backward pass of a microbatch
  // follows. It is given plain hooks alone. Wrappers are withheld, and their handlers are among the
  // backward hooks, if the region's backward lists were taken out as well.
  void run_given(HookPoint point, const HookCall& call);

 private:
  struct Taken {
    List from;
    Hooks::List hooks;            // As they were.
    Hooks::Handlers handlers;     // They wait for a backward pass.
    Hooks::List given = {};       // To a capture routine: without wrappers.
    Hooks::Handlers routed = {};  // To a capture routine: handlers of wrappers that end up here.
  };
  // Puts everything back when it dies.
  struct Restored {
    explicit Restored(Hooks& from, int its_slot) : hooks(from), slot(its_slot) {}
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;
    ~Restored();
    Hooks& hooks;
    int slot;
    std::vector<Taken> taken;
  };
  void take_handlers();
  void route_wrappers(const Taken& from);
  void run(bool before, const HookCall& call);

  Restored restored_;
};

}  // namespace lockstep
