// A fingerprint of the contract's primitives and functions: a hash of what each gives for 4,096
// inputs. Host, simulator and GPU must have the constants below before anything is trained or
// judged.
#pragma once

#include <string>

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

inline constexpr const char* kFingerprinted[] = {
    "fma", "add",      "mul",     "div",  "sqrt",  "rsqrt", "exp", "expn", "log",
    "erf", "softplus", "sigmoid", "silu", "dsilu", "sin",   "cos", "st",   "float"};
inline constexpr int kFingerprints = sizeof(kFingerprinted) / sizeof(*kFingerprinted);
inline constexpr int kFingerprintInputs = 4096;

// hashes[f] = sum over the inputs, modulo 2^64, of a hash of function f's result.
struct Fingerprint {
  static constexpr const char* kName = "fingerprint";
  Out<std::uint64_t> hashes;  // [1, kFingerprints]
};
void check(const Fingerprint& op);
void run(HostQueue, const Fingerprint& op);
void run(CudaQueue, const Fingerprint& op);

// "" if these are the contract's, else the first function that has other bits.
std::string fingerprint_complaint(const std::uint64_t* hashes);

namespace fingerprint {

// All bit patterns, numbers near one, subnormal and tiny ones, huge ones: a quarter each.
LOCKSTEP_HD float input(std::uint64_t e, int operand) {
  const auto h = static_cast<std::uint32_t>(
      mix64((e * 3 + static_cast<std::uint64_t>(operand)) * 0x9E3779B97F4A7C15u));
  const std::uint32_t kind = (e + static_cast<std::uint64_t>(operand)) % 4,
                      field = (h >> 23) & 255u;
  const std::uint32_t moved = kind == 1   ? 117 + field % 20
                              : kind == 2 ? field % 3
                              : kind == 3 ? 230 + field % 25
                                          : field;
  return from_bits((h & 0x807fffffu) | moved << 23);
}

LOCKSTEP_HD float result(int function, float a, float b, float c, float inside) {
  switch (function) {
    case 0:
      return fma(a, b, c);
    case 1:
      return add(a, b);
    case 2:
      return mul(a, b);
    case 3:
      return div(a, b);
    case 4:
      return sqrt(abs(a));
    case 5:
      return rsqrt(abs(a));
    case 6:
      return exp(a);
    case 7:
      return expn(neg(abs(a)));
    case 8:
      return log(a);
    case 9:
      return erf(a);
    case 10:
      return softplus(a);
    case 11:
      return sigmoid(a);
    case 12:
      return silu(a);
    case 13:
      return dsilu(a);
    case 14:
      return sin(inside);
    case 15:
      return cos(inside);
    case 16:
      return load(st<bf16>(a));
    default:
      return static_cast<float>(static_cast<std::int32_t>(bits(a)));
  }
}

// Subnormal numbers lost, as by a mode of the processor: what the guard must see.
LOCKSTEP_HD float flushed(float x) { return (bits(x) & 0x7f800000u) == 0 ? 0.0f : x; }

LOCKSTEP_HD std::uint64_t term(int function, std::uint64_t e, bool flush) {
  const float a = input(e, 0), b = input(e, 1), c = input(e, 2);
  const float inside = mul(sub(uniform(bits(b)), 0.5f), 2e5f);  // Where sin and cos are legal.
  float y = flush ? flushed(result(function, flushed(a), flushed(b), flushed(c), inside))
                  : result(function, a, b, c, inside);
  y = y != y ? quiet_nan() : y;  // A NaN's bits differ between machines.
  const std::uint64_t place = mix64(static_cast<std::uint64_t>(kContractVersion) << 40 |
                                    static_cast<std::uint64_t>(function) << 32 | e);
  return mix64(place ^ bits(y));
}

}  // namespace fingerprint
}  // namespace lockstep
