// The ops of the CUDA object, by their place in AllOps.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace lockstep {

class ProductPlans;

// Launches the op on the stream. Throws std::runtime_error when CUDA refuses; what() is CUDA's name
// of the error.
void run_on_cuda(int op_id, CUstream_st* stream, const ProductPlans& plans, const void* op);

// Plans the products of the op, if it has any that a library could do.
void plan_on_cuda(int op_id, ProductPlans& plans, const void* op);

// Plans the op where cuDNN does it, and says how many bytes of workspace it takes; 0 for all other
// ops.
std::int64_t workspace_on_cuda(int op_id, const void* op);

// The op by the fastest algorithm of a library, whatever its bits; false where none does it. Chosen
// at the first call.
bool run_fastest_on_cuda(int op_id, CUstream_st* stream, const void* op);

}  // namespace lockstep
