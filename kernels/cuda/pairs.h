// Other ways to run ops than one behind the other: pairs that one kernel runs, ops that may run
// beside those that follow, and batches of short ones. Host code; the caller knows the order of ops
// and what they touch.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/core/queue.h"
#include "kernels/submission/submission.h"

namespace lockstep {

class ProductPlans;

// Whether one kernel may run the op together with a later one.
bool begins_pair(const Submission& op);
// Whether `op` may come between such an op and the other one of its pair, which it does not need.
bool comes_between(const Submission& first, const Submission& op);
// Whether one kernel runs both: the second takes what the first makes, and writes nothing that the
// first touches.
bool are_pair(const Submission& first, const Submission& second);
// Runs both. The caller has asked are_pair().
void run_pair(CudaQueue queue, const Submission& first, const Submission& second);

// Bytes of the workspace of what runs beside.
inline constexpr std::size_t kWorkspaceBeside = 4096;
// Whether nothing but sums of a step wait for what the op makes, and it leaves multiprocessors free
// for what runs beside it: a product has at most two tiles for each.
bool runs_beside(const Submission& op);
// Plans such an op's product for where it runs beside others. Does nothing for other ops.
void plan_beside(ProductPlans& plans, const Submission& op);
// Runs such an op. A product takes this workspace in place of its own.
void run_beside(CudaQueue queue, const Submission& op, void* workspace);

// Whether one kernel may run the op side by side with others of its type.
bool joins_batch(const Submission& op);
// Runs ops of one type, of which none writes what another touches.
void run_batch(CudaQueue queue, const std::vector<Submission>& ops);

}  // namespace lockstep
