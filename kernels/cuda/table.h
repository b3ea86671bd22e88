// The ops of the CUDA object, by their place in AllOps.
#pragma once

struct CUstream_st;

namespace lockstep {

// Launches the op on the stream; throws std::runtime_error when CUDA refuses. `op` points to the op's struct.
void run_on_cuda(int op_id, CUstream_st* stream, const void* op);

}  // namespace lockstep
