// The queues on which ops run. Each op has one `run` per queue type; a missing one is a link error.
#pragma once

struct CUstream_st;

namespace lockstep {

class ProductPlans;

struct HostQueue {};  // At once, on the calling thread.

struct CudaQueue {
  CUstream_st* stream;
  const ProductPlans* plans = nullptr;  // Null: our own kernels do every product.
};

}  // namespace lockstep
