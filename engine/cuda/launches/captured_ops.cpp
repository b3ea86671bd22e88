#include "engine/cuda/launches/captured_ops.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <string_view>
#include <utility>

#include "engine/cuda/launches/capture_state.h"
#include "engine/cuda/launches/touched.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/pairs.h"
#include "kernels/cuda/table.h"

namespace lockstep {
namespace {

// Others take free multiprocessors first: they are what the end of the graph waits for.
void let_others_first(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  cuda_launch_check(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeKernel) return;
  cudaKernelNodeAttrValue value = {};
  value.priority = 0;  // The least.
  cuda_launch_check(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value));
}

// Makes the capture the one that work of this thread's ops may run beside.
class Current {
 public:
  explicit Current(Beside* beside) : before_(std::exchange(Beside::current(), beside)) {}
  ~Current() { Beside::current() = before_; }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  Beside* before_;
};

}  // namespace

void CapturedOps::submit(const Submission& op) {
  if (!held_.empty()) {
    if (is_pair_with(op)) {
      const std::vector<Submission> held = std::exchange(held_, {});
      await(touched_by(held.front().operands()));
      await(touched_by(op.operands()));
      run_pair({stream_, &plans_}, held.front(), op);
      for (std::size_t i = 1; i < held.size(); ++i) submit_one(held[i]);
      return;
    }
    if (comes_between(held_.front(), op)) {
      held_.push_back(op);
      return;
    }
    submit_held();
  }
  if (begins_pair(op)) {
    held_.push_back(op);
  } else {
    submit_one(op);
  }
}

// The ops between the two must not touch what the second op touches, since it runs before them.
bool CapturedOps::is_pair_with(const Submission& op) const {
  if (!are_pair(held_.front(), op)) return false;
  const std::vector<Touched> second = touched_by(op.operands());
  return std::all_of(held_.begin() + 1, held_.end(), [&](const Submission& between) {
    return !meet(touched_by(between.operands()), second);
  });
}

void CapturedOps::submit_held() {
  for (const Submission& op : std::exchange(held_, {})) submit_one(op);
}

void CapturedOps::submit_one(const Submission& op) {
  if (in_line_ || workspace_ == nullptr || !runs_beside(op)) {
    await(touched_by(op.operands()));
    return launch(op);
  }
  std::vector<OperandBytes> operands = op.operands();
  for (OperandBytes& one : operands) {
    if (std::string_view(one.name) == "workspace") one.base = workspace_;
  }
  run(touched_by(operands), [&] { run_beside({stream_, &plans_}, op, workspace_); });
}

void CapturedOps::launch(const Submission& op) {
  const Current current(in_line_ ? nullptr : this);
  run_on_cuda(op.type().id, stream_, plans_, op.op());
}

CapturedOps::Ends CapturedOps::ends_of(const std::vector<Touched>& touched) const {
  Ends ends;
  for (const Work& one : std::views::reverse(beside_)) {
    if (ends.follows.contains(one.number) || !meet(one.touched, touched)) continue;
    ends.nodes.insert(ends.nodes.end(), one.nodes.begin(), one.nodes.end());
    ends.follows.insert(one.number);
    ends.follows.insert(one.follows.begin(), one.follows.end());
  }
  return ends;
}

void CapturedOps::run(std::vector<Touched> touched, const std::function<void()>& launch) {
  Capture before;
  cuda_launch_check(ask(stream_, before));
  if (!before.active) return launch();  // The capture broke, which its end tells.
  auto [behind, follows] = ends_of(touched);
  behind.insert(behind.begin(), before.behind.begin(), before.behind.end());
  cuda_launch_check(go_on_behind(stream_, behind));
  launch();
  Capture after;
  cuda_launch_check(ask(stream_, after));
  if (!after.active) return;
  for (const cudaGraphNode_t node : after.behind) let_others_first(node);
  cuda_launch_check(go_on_behind(stream_, before.behind));
  beside_.push_back({++number_, std::move(touched), std::move(after.behind), std::move(follows)});
}

void CapturedOps::await(const std::vector<Touched>& touched) {
  const auto [nodes, follows] = ends_of(touched);
  if (nodes.empty()) return;
  Capture now;
  cuda_launch_check(ask(stream_, now));
  if (!now.active) return;
  now.behind.insert(now.behind.end(), nodes.begin(), nodes.end());
  cuda_launch_check(go_on_behind(stream_, now.behind));
  std::erase_if(beside_, [&](const Work& one) { return follows.contains(one.number); });
}

void CapturedOps::join() {
  submit_held();
  const Touched all = {.begin = nullptr,
                       .rows = 1,
                       .row_bytes = std::numeric_limits<std::int64_t>::max(),
                       .pitch_bytes = 0,
                       .is_written = true};
  await({all});
}

}  // namespace lockstep
