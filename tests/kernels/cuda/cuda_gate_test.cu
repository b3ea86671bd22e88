// The cheap forms of gate.cuh have the contract's bits for every float: all 2^32 of them, on the
// GPU. NaN counts where a form promises it.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/common/gate.cuh"

namespace lockstep {
namespace {

constexpr const char* kForms[] = {"gate_of",       "gated", "gated_slope",
                                  "expn_in_range", "gates", "near_gates"};
constexpr int kCount = sizeof(kForms) / sizeof(*kForms);
constexpr std::uint32_t kBlocks = 4096, kBlock = 256;
constexpr unsigned long long kNone = ~0ull;

struct Found {
  unsigned long long compared[kCount];
  unsigned long long differ[kCount];
  unsigned long long first[kCount];  // The lowest bit pattern that differs.
};

struct Counts {
  std::uint32_t compared[kCount] = {};
  std::uint32_t differ[kCount] = {};

  __device__ void compare(Found* found, int form, float x, float cheap, float contract) {
    ++compared[form];
    if (bits(cheap) == bits(contract)) return;
    ++differ[form];
    atomicMin(&found->first[form], static_cast<unsigned long long>(bits(x)));
  }
};

// The canary: for this input every form is taken to have the bits of its negative.
__global__ void __launch_bounds__(kBlock) compare_all(Found* found, unsigned long long canary) {
  Counts own;
  std::uint32_t pattern = blockIdx.x * kBlock + threadIdx.x;
  do {
    const float x = from_bits(pattern);
    const auto seen = [&](float y) { return pattern == canary ? neg(y) : y; };
    if (x == x) own.compare(found, 0, x, seen(gate_of(x)), sigmoid(x));
    own.compare(found, 1, x, seen(gated(x)), silu(x));
    own.compare(found, 2, x, seen(gated_slope(x)), dsilu(x));
    const float places[] = {x, 1.0f, x, x};
    const Gates near = near_gates(places);
    const Vec4 four = near.sure ? near.stored : exact_gates(places);
    const float stored = load(st<bf16>(silu(x)));
    own.compare(
        found, 4, x,
        seen(bits(four[0]) == bits(four[2]) && bits(four[2]) == bits(four[3]) ? four[0] : -1.0f),
        stored);
    NearGates gates;
    const std::uint32_t pairs[] = {gates.pair(x, 1.0f), gates.pair(0.0f, x)};
    gates.take(pairs[0], pairs[1]);
    const float want = load(st<bf16>(silu(add(x, 0.0f))));
    float got = gates.sure() ? from_bits(pairs[0] << 16) : want;
    if (bits(got) != (gates.sure() ? pairs[1] & 0xffff0000u : bits(want))) got = -1.0f;
    if (gates.sure() != (near.sure && bits(near.stored[0]) != 0x80000000u)) got = -2.0f;
    own.compare(found, 5, x, seen(got), want);
    if (x >= -87.0f && x <= 0.0f) own.compare(found, 3, x, seen(expn_in_range(x)), expn(x));
    pattern += kBlocks * kBlock;
  } while (pattern >= kBlocks * kBlock);
  for (int form = 0; form < kCount; ++form) {
    atomicAdd(&found->compared[form], static_cast<unsigned long long>(own.compared[form]));
    atomicAdd(&found->differ[form], static_cast<unsigned long long>(own.differ[form]));
  }
}

bool holds(bool ok, const char* what) {
  if (!ok) std::printf("failed: %s\n", what);
  return ok;
}

// All inputs, with a canary or without.
bool run(unsigned long long canary, unsigned long long want) {
  Found* found = nullptr;
  if (!holds(cudaMallocManaged(&found, sizeof(Found)) == cudaSuccess, "memory on the device"))
    return false;
  for (int form = 0; form < kCount; ++form) *found = {};
  for (int form = 0; form < kCount; ++form) found->first[form] = kNone;
  cudaStream_t stream = nullptr;
  if (!holds(cudaStreamCreate(&stream) == cudaSuccess, "a stream")) return false;
  compare_all<<<kBlocks, kBlock, 0, stream>>>(found, canary);
  bool ok = holds(cudaStreamSynchronize(stream) == cudaSuccess, "a run on the device");
  const unsigned long long numbers = (1ull << 32) - 2 * ((1ull << 23) - 1), all = 1ull << 32;
  const unsigned long long in_range = 1ull + 0x42ae0000ull + 1;  // +0, and -0 to -87.
  const unsigned long long compared[kCount] = {numbers, all, all, in_range, all, all};
  for (int form = 0; form < kCount; ++form) {
    std::printf("%s: %llu compared, %llu differ, first %llx\n", kForms[form], found->compared[form],
                found->differ[form], found->first[form]);
    ok = holds(found->compared[form] == compared[form], "all inputs are compared") && ok;
    ok = holds(found->differ[form] == want, "as many differ as should") && ok;
    ok = holds(want == 0 || found->first[form] == canary, "the canary is named") && ok;
  }
  return cudaStreamDestroy(stream) == cudaSuccess && cudaFree(found) == cudaSuccess && ok;
}

}  // namespace
}  // namespace lockstep

int main() {
  const bool caught = lockstep::run(0xbf800000, 1);  // At -1, where all forms have a value.
  const bool equal = lockstep::run(lockstep::kNone, 0);
  return caught && equal ? 0 : 1;
}
