#include "engine/plan/region_hooks.h"

namespace lockstep {
namespace {

using Lists = std::vector<ExtractedHooks::List>;

bool begins(const Part& part) { return part.begin == Stage::router; }
bool ends(const Part& part) { return part.end == Stage::end; }

}  // namespace

Lists hooks_before(const Part& part, bool forward) {
  if (!(forward ? begins(part) : ends(part))) return {};
  return {{Modules::layer(part.layer), forward ? HookPoint::forward_pre : HookPoint::backward_pre}};
}

Lists hooks_after(const Part& part, bool forward) {
  if (!(forward ? ends(part) : begins(part))) return {};
  return {
      {Modules::layer(part.layer), forward ? HookPoint::forward_post : HookPoint::backward_post}};
}

Lists hooks_of(const Segment& segment, bool forward) {
  Lists lists;
  const std::size_t count = segment.parts.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Part& part = segment.parts[forward ? i : count - 1 - i];
    for (const Lists& some : {hooks_before(part, forward), hooks_after(part, forward)}) {
      lists.insert(lists.end(), some.begin(), some.end());
    }
  }
  return lists;
}

Lists hooks_of_layers(int first, int end) {
  Segment all;
  for (int layer = first; layer < end; ++layer) all.parts.push_back({.layer = layer});
  Lists lists = hooks_of(all, true);
  const Lists backward = hooks_of(all, false);
  lists.insert(lists.end(), backward.begin(), backward.end());
  return lists;
}

}  // namespace lockstep
