// Ordered lists of calls that run around the modules of a model, four for each module. Sharded
// weights are gathered and released there, and gradients are reduced. If the body of a module is in
// a graph, its hooks stay outside: they are removed while the region is captured, recorded or
// replayed, and run around the region in the order that they have eagerly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

enum class HookPoint : std::uint8_t { forward_pre, forward_post, backward_pre, backward_post };

// The arguments of a hook.
struct HookCall {
  int microbatch = 0;
  bool last = false;  // The last microbatch of the step: its backward pass completes the gradients.
};

class Hooks {
 public:
  using Hook = std::function<void(const HookCall&)>;

  explicit Hooks(int modules) : lists_(modules) {}
  void add(int module, HookPoint point, Hook hook) {
    list(module, point).push_back(std::move(hook));
  }
  std::size_t count(int module, HookPoint point) const {
    return at(at(lists_, module), point).size();
  }
  void run(int module, HookPoint point, const HookCall& call) {
    for (const Hook& hook : list(module, point)) hook(call);
  }

 private:
  friend class ExtractedHooks;
  std::vector<Hook>& list(int module, HookPoint point) { return at(at(lists_, module), point); }
  std::vector<std::array<std::vector<Hook>, 4>> lists_;
};

// The lists of a region while it is captured; the destructor restores them in every case.
class ExtractedHooks {
 public:
  struct List {
    int module;
    HookPoint point;
  };
  // Lists the hooks in the order in which the region runs them. All are taken first, then sorted
  // into those that run before the region and those that run after it.
  ExtractedHooks(Hooks& hooks, const std::vector<List>& lists);
  ~ExtractedHooks();
  ExtractedHooks(const ExtractedHooks&) = delete;
  ExtractedHooks& operator=(const ExtractedHooks&) = delete;

  void run_before(const HookCall& call) const { run(before_, call); }
  void run_after(const HookCall& call) const { run(after_, call); }

 private:
  struct Taken {
    List from;
    std::vector<Hooks::Hook> hooks;
  };
  void run(const std::vector<std::size_t>& order, const HookCall& call) const;
  Hooks& hooks_;
  std::vector<Taken> taken_;
  std::vector<std::size_t> before_, after_;  // For `taken_`.
};

}  // namespace lockstep
