// The ops of the CUDA object, by their place in AllOps.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace lockstep {

class ProductPlans;

// Launches the op on the stream. Throws std::runtime_error with CUDA's name of the error if CUDA
// refuses.
void run_on_cuda(int op_id, CUstream_st* stream, const ProductPlans& plans, const void* op);

// Plans those products of the op that a library could run.
void plan_on_cuda(int op_id, ProductPlans& plans, const void* op);

// Plans an op that cuDNN runs, and returns the bytes of workspace that it needs; 0 for all other
// ops.
std::int64_t workspace_on_cuda(int op_id, const void* op);

// Runs the op by the library's fastest algorithm, whatever its bits, which the first call chooses.
// False if no library runs it.
bool run_fastest_on_cuda(int op_id, CUstream_st* stream, const void* op);

}  // namespace lockstep
