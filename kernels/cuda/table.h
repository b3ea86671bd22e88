// The ops of the CUDA object, by their place in AllOps.
#pragma once

struct CUstream_st;

namespace lockstep {

// Launches the op on the stream. Throws std::runtime_error when CUDA refuses; what() is CUDA's name of the error.
void run_on_cuda(int op_id, CUstream_st* stream, const void* op);

}  // namespace lockstep
