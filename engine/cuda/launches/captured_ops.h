// How the ops of a capture become nodes of a graph. Eager ops follow each other on a stream; in a
// graph some need not:
//
// - What only gradients of weights wait for runs beside the ops that follow (`runs_beside`, and the
//   last kernels of some ops): each op waits for what runs beside it and touches the same memory,
//   and for nothing else.
// - Some pairs of neighbours are one kernel, which reads once what both read.
//
// Bits are the same, since every op has the operands that it has on the stream.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <set>
#include <vector>

#include "kernels/cuda/common/beside.h"
#include "kernels/submission/submission.h"

namespace lockstep {

class ProductPlans;

// One stream's, from the begin of its capture to the end. Errors are std::runtime_error with
// CUDA's name of them.
class CapturedOps : Beside {
 public:
  // Products that run beside others need a workspace of their own, of kWorkspaceBeside bytes.
  CapturedOps(cudaStream_t stream, const ProductPlans& plans, void* workspace)
      : stream_(stream), plans_(plans), workspace_(workspace) {}
  void submit(const Submission& op);
  // Called before anything on the stream that is no op: it comes behind all ops so far.
  void join();
  // Called before the capture ends. What still runs beside ends with the graph.
  void finish() { submit_held(); }
  // From now on nothing runs beside. For graphs that copy pinned memory, whose branches must be
  // few (copy_branches.h).
  void stay_in_line() { in_line_ = true; }

 private:
  struct Work {
    int number;
    std::vector<Touched> touched;
    std::vector<cudaGraphNode_t> nodes;
    std::set<int> follows;  // Numbers of the work that ends before this begins.
  };
  struct Ends {
    std::vector<cudaGraphNode_t> nodes;
    std::set<int> follows;  // Numbers of all work that has ended once these nodes have.
  };
  // The ends of the work that touches the same memory.
  Ends ends_of(const std::vector<Touched>& touched) const;
  void run(std::vector<Touched> touched, const std::function<void()>& launch) override;
  bool is_pair_with(const Submission& op) const;
  void submit_held();
  void submit_one(const Submission& op);
  // Has the stream's next op follow the work that runs beside it and touches the same.
  void await(const std::vector<Touched>& touched);
  void launch(const Submission& op);

  cudaStream_t stream_;
  const ProductPlans& plans_;
  void* workspace_;
  bool in_line_ = false;
  std::vector<Submission> held_;  // The first op of a pair, and what may come between the two.
  int number_ = 0;
  std::vector<Work> beside_;  // What the stream's next op does not follow yet.
};

}  // namespace lockstep
