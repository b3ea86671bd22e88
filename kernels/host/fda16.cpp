#include "kernels/host/fda16.h"

#include <algorithm>

#include "kernels/core/at.h"
#include "kernels/core/fda16.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

std::int16_t fda_exponent(float x) {
  const std::uint32_t u = bits(abs(x));
  if (u == 0) return kFdaZero;
  if (u >= 0x7f800000u) return kFdaSpecial;
  return static_cast<std::int16_t>(std::max<int>(static_cast<int>(u >> 23), 1) - 127);
}
std::uint32_t twice(std::int16_t exponent) {
  return static_cast<std::uint16_t>(exponent) * 0x10001u;
}
std::int64_t whole_groups(std::int64_t n) { return (n + kFdaGroup - 1) / kFdaGroup * kFdaGroup; }
static_assert(kFdaGroup == kSm90.group && kFdaLanes == kFdaGroup);

}  // namespace

template <class T>
void FdaPanels::pack(std::int64_t k, std::int64_t n, const T* b, std::int64_t step_stride,
                     std::int64_t column_stride) {
  depth_ = whole_groups(k);
  columns_ = n;
  const std::size_t size = depth_ * whole_groups(n);
  if (values_.size() < size) values_.resize(size), exponents_.resize(size);
  for (std::int64_t first = 0; first < n; first += kFdaLanes) {
    float* value = values_.data() + first * depth_;
    std::int16_t* exponent = exponents_.data() + first * depth_;
    const std::int64_t live = std::min<std::int64_t>(kFdaLanes, n - first);
    std::fill_n(value, depth_ * kFdaLanes, 0.0f);
    for (std::int64_t e = 0; e < k; ++e) {
      const T* from = b + e * step_stride + first * column_stride;
      for (std::int64_t j = 0; j < live; ++j) {
        if constexpr (std::is_same_v<T, bf16>) {
          value[e * kFdaLanes + j] = load(from[j * column_stride]);
        } else {
          value[e * kFdaLanes + j] = load(st<bf16>(from[j * column_stride]));
        }
      }
    }
    for (std::int64_t e = 0; e < depth_ * kFdaLanes; ++e) exponent[e] = fda_exponent(value[e]);
  }
}
template void FdaPanels::pack(std::int64_t, std::int64_t, const float*, std::int64_t, std::int64_t);
template void FdaPanels::pack(std::int64_t, std::int64_t, const bf16*, std::int64_t, std::int64_t);

void pack_fda_row(std::int64_t begin, std::int64_t end, const float* a, std::int64_t stride,
                  float* values, std::uint32_t* exponents) {
  for (std::int64_t e = begin; e < end; ++e) {
    values[e] = a[e * stride];
    exponents[e] = twice(fda_exponent(values[e]));
  }
}

void fda_lane(std::int64_t places, const float* a, const float* b, float* c) {
  *c = fda_step(kSm90, static_cast<int>(places), a, 1, b, kFdaLanes, *c);
}

void fda_scalar(std::int64_t begin, std::int64_t end, const float* a, const std::uint32_t*,
                const float* b, const std::int16_t*, float* c) {
  for (int j = 0; j < kFdaLanes; ++j)
    c[j] = fda_chain(kSm90, begin, end, a, 1, b + j, kFdaLanes, c[j]);
}

const std::vector<FdaForm>& fda_forms() {
  static const std::vector<FdaForm> forms = [] {
    std::vector<FdaForm> list;
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (wide) list.push_back({"avx512", fda_avx512});
    if (__builtin_cpu_supports("avx2")) list.push_back({"avx2", fda_avx2});
#endif
    list.push_back({"scalar", fda_scalar});
    return list;
  }();
  return forms;
}

void fda_row(std::int64_t begin, std::int64_t end, const float* a, std::int64_t a_stride,
             const FdaPanels& b, float* c, std::int64_t columns) {
  static const FdaKernel kernel = fda_forms().front().kernel;
  if (begin >= end) return;
  thread_local std::vector<float> values;
  thread_local std::vector<std::uint32_t> exponents;
  // Places count from the start of the group of `begin`, so that the buffers stay as short as the
  // range.
  const std::int64_t base = begin / kFdaGroup * kFdaGroup;
  if (values.size() < static_cast<std::size_t>(end - base)) {
    values.resize(end - base);
    exponents.resize(values.size());
  }
  pack_fda_row(begin - base, end - base, a + base * a_stride, a_stride, values.data(),
               exponents.data());
  for (std::int64_t first = 0; first < columns; first += kFdaLanes) {
    const std::int64_t panel = first / kFdaLanes,
                       live = std::min<std::int64_t>(kFdaLanes, columns - first);
    const float* bv = b.values(panel) + base * kFdaLanes;
    const std::int16_t* be = b.exponents(panel) + base * kFdaLanes;
    if (live == kFdaLanes) {
      kernel(begin - base, end - base, values.data(), exponents.data(), bv, be, c + first);
    } else {
      float padded[kFdaLanes] = {};
      std::copy_n(c + first, live, padded);
      kernel(begin - base, end - base, values.data(), exponents.data(), bv, be, padded);
      std::copy_n(padded, live, c + first);
    }
  }
}

template <class Result>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Bf16View a, Bf16View b, Result* c,
             std::int64_t c_pitch) {
  constexpr std::int64_t kRows = 64,
                         kDepth = 256;  // A slice of a panel stays in cache while the rows pass.
  static const FdaKernel kernel = fda_forms().front().kernel;
  thread_local FdaPanels panels;
  thread_local std::vector<float> values;
  thread_local std::vector<std::uint32_t> exponents;
  panels.pack(k, n, b.data, b.row_stride, b.col_stride);
  values.resize(kRows * k);
  exponents.resize(values.size());
  for (std::int64_t top = 0; top < m; top += kRows) {
    const std::int64_t rows = std::min(kRows, m - top);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t e = 0; e < k; ++e) {
        const float x = load(a.data[(top + i) * a.row_stride + e * a.col_stride]);
        at(values, i * k + e) = x;
        at(exponents, i * k + e) = twice(fda_exponent(x));
      }
    }
    for (std::int64_t first = 0; first < n; first += kFdaLanes) {
      alignas(64) float tile[kRows * kFdaLanes] = {};
      const float* bv = panels.values(first / kFdaLanes);
      const std::int16_t* be = panels.exponents(first / kFdaLanes);
      for (std::int64_t begin = 0; begin < k; begin += kDepth) {
        const std::int64_t end = std::min(k, begin + kDepth);
        for (std::int64_t i = 0; i < rows; ++i) {
          kernel(begin, end, values.data() + i * k, exponents.data() + i * k, bv, be,
                 tile + i * kFdaLanes);
        }
      }
      const std::int64_t live = std::min<std::int64_t>(kFdaLanes, n - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < live; ++j)
          c[(top + i) * c_pitch + first + j] = st<Result>(tile[i * kFdaLanes + j]);
      }
    }
  }
}
template void product(std::int64_t, std::int64_t, std::int64_t, Bf16View, Bf16View, bf16*,
                      std::int64_t);
template void product(std::int64_t, std::int64_t, std::int64_t, Bf16View, Bf16View, float*,
                      std::int64_t);

}  // namespace lockstep
