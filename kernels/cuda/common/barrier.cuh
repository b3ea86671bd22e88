// The parts of a pipeline inside a block: mbarriers, asynchronous copies, register shares.
#pragma once

#include <cstdint>

namespace lockstep {

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
// Returns the address in a register, so that it is not computed anew at each use.
__device__ __forceinline__ std::uint32_t kept_address(const void* shared) {
  std::uint32_t address = shared_address(shared);
  asm volatile("" : "+r"(address));
  return address;
}

// An mbarrier between the threads that fill a buffer and those that use it, by its address in
// shared memory. A phase is over when as many threads as it was initialised with have arrived. It
// is awaited by its parity: 0 for the first, 1 for the second, 0 for the third.
struct BarrierAt {
  std::uint32_t address;

  __device__ __forceinline__ void init(std::uint32_t count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count));
  }
  __device__ __forceinline__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  __device__ __forceinline__ bool over(std::uint32_t parity) const {
    std::uint32_t is_over;
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, "
        "1, 0, p;\n}"
        : "=r"(is_over)
        : "r"(address), "r"(parity)
        : "memory");
    return is_over != 0;
  }
  __device__ __forceinline__ void wait(std::uint32_t parity) const {
    while (!over(parity)) {
    }
  }
};
struct alignas(8) Barrier {
  std::uint64_t word;

  __device__ __forceinline__ BarrierAt at() { return {shared_address(this)}; }
  __device__ __forceinline__ void init(std::uint32_t count) { at().init(count); }
  __device__ __forceinline__ void arrive() { at().arrive(); }
  __device__ __forceinline__ bool over(std::uint32_t parity) { return at().over(parity); }
  __device__ __forceinline__ void wait(std::uint32_t parity) { at().wait(parity); }
};
// Makes initialised barriers visible; other threads see them after the next __syncthreads().
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Makes the thread's writes to shared memory visible to the tensor core of a thread that sees this
// one arrive.
__device__ __forceinline__ void fence_for_tensor_core() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts a copy of 16 bytes to shared memory; if not `inside`, it writes zeros and reads nothing.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all but the last `kOpen` groups of the thread's copies.
template <int kOpen>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// Sets the registers of each thread; called by a whole warpgroup. The launch bounds fix the block's
// total.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic dependent launch: the calls of a kernel that does not begin with pdl_begin().
__device__ __forceinline__ void pdl_trigger() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Named barrier `id` (1 to 15) of `threads` threads, some of which wait while others only arrive.
__device__ __forceinline__ void wait_at(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace lockstep
