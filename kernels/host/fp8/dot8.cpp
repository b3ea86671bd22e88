#include "kernels/host/fp8/dot8.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// The exponent that takes a code's bits to those of a float.
template <class F>
constexpr std::uint32_t bias_of() {
  return static_cast<std::uint32_t>(127 - F::kBias) << 23;
}
// No step makes a subnormal float, which many processors handle slowly.
template <class F>
float magnitude(std::uint8_t code) {
  constexpr std::uint32_t kOne = 1u << 23;  // In the exponent.
  const std::uint32_t low = static_cast<std::uint32_t>(code & 0x7f) << (23 - F::kFraction);
  const float subnormal = sub(from_bits(low + bias_of<F>() + kOne), from_bits(bias_of<F>() + kOne));
  return low < kOne ? subnormal : from_bits(low + bias_of<F>());
}
// to[i] = the exponent of code i as the fast forms add it, in a form that compilers vectorise.
template <class F>
void take_exponents(const std::uint8_t* __restrict codes, std::int64_t n,
                    std::int8_t* __restrict to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint8_t>(codes[i] & 0x7f);
    const int field = magnitude >> F::kFraction;
    const int number = magnitude == 0 ? kDot8Zero : std::max(field, 1) - F::kBias;
    to[i] = static_cast<std::int8_t>(magnitude > F::kTop ? kDot8Special : number);
  }
}
// For a planted fault: significands of subnormal codes begin with their hidden bit too.
template <class F>
void take_normalised(const std::uint8_t* codes, std::int64_t n, std::int8_t* to) {
  take_exponents<F>(codes, n, to);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t hidden = 1u << F::kFraction;
    for (std::uint32_t m = codes[i] & 0x7fu; m > 0 && m < hidden; m <<= 1) --to[i];
  }
}
using Exponents = void (*)(const std::uint8_t*, std::int64_t, std::int8_t*);
template <class F>
Exponents exponents() {
  return faulty("fp8-decode-normalises-subnormals", &take_exponents<F>, &take_normalised<F>);
}
std::int64_t whole_groups(std::int64_t n) { return (n + kFp8Group - 1) / kFp8Group * kFp8Group; }

// The right factor in panels of 16 columns: what Dot8Slice points into, for all of k.
class Panels {
 public:
  template <class B>
  void pack(std::int64_t n, std::int64_t k, const Fp8View<B>& b) {
    depth_ = whole_groups(k);
    const std::int64_t columns = (n + kDot8Lanes - 1) / kDot8Lanes * kDot8Lanes;
    codes_.resize(depth_ * columns);
    exponents_.resize(codes_.size());
    const Exponents take = exponents<B>();
    for (std::int64_t first = 0; first < columns; first += kDot8Lanes) {
      const std::int64_t lanes = std::min<std::int64_t>(kDot8Lanes, n - first);
      for (std::int64_t e = 0; e < depth_; e += kWord) {
        const std::int64_t place = first * depth_ + e * kDot8Lanes;
        std::uint8_t words[kWord * kDot8Lanes] = {};  // Four places of each column.
        for (std::int64_t j = 0; j < lanes && e < k; ++j)
          std::memcpy(words + kWord * j, b.data + (first + j) * b.pitch + e,
                      std::min(kWord, k - e));
        take(words, kWord * kDot8Lanes, exponents_.data() + place);
        std::uint8_t* to = codes_.data() + place;
        for (int j = 0; j < kDot8Lanes; ++j) {
          for (int q = 0; q < kWord; ++q) to[q * kDot8Lanes + j] = words[kWord * j + q];
        }
      }
    }
  }
  template <class B>
  Dot8Slice slice(std::int64_t panel, std::int64_t begin, std::int64_t end) const {
    const std::int64_t place = (panel * depth_ + begin) * kDot8Lanes;
    return {static_cast<int>(whole_groups(end - begin) / kFp8Group), codes_.data() + place,
            exponents_.data() + place, 23 - B::kFraction, bias_of<B>()};
  }

 private:
  static constexpr std::int64_t kWord = 4;

  std::int64_t depth_ = 0;
  std::vector<std::uint8_t> codes_;
  std::vector<std::int8_t> exponents_;
};

// Rows of the left factor, the places behind k as zeros.
class PackedRows {
 public:
  template <class A>
  void pack(std::int64_t rows, std::int64_t k, const Fp8View<A>& a) {
    depth_ = whole_groups(k);
    const std::int64_t size = rows * depth_;
    if (std::ssize(codes_) < size)
      codes_.resize(size), magnitudes_.resize(size), offsets_.resize(size), exponents_.resize(size);
    if (size == 0) return;  // An expert without rows: its weights' gradient is a sum of nothing.
    for (std::int64_t i = 0; i < rows; ++i) {
      std::uint8_t* row = codes_.data() + i * depth_;
      std::memcpy(row, a.data + i * a.pitch, k);
      std::fill(row + k, row + depth_, std::uint8_t{0});
    }
    exponents<A>()(codes_.data(), size, exponents_.data());
    for (std::int64_t e = 0; e < size; ++e) {
      at(magnitudes_, e) = magnitude<A>(at(codes_, e));
      at(offsets_, e) = 64 + (at(codes_, e) >> 7) * 64;
    }
  }
  Dot8Rows from(std::int64_t begin) const {
    return {magnitudes_.data() + begin, offsets_.data() + begin, exponents_.data() + begin, depth_};
  }

 private:
  std::int64_t depth_ = 0;
  std::vector<std::uint8_t> codes_;
  std::vector<float> magnitudes_;
  std::vector<std::int32_t> offsets_;
  std::vector<std::int8_t> exponents_;
};

// The runs into which a sum is cut. Planted faults cut it elsewhere, where only the scalar model
// follows.
struct Runs {
  Dot8Kernel kernel;
  std::int64_t length;
};
Runs runs_of(Dot8Kernel kernel, std::int64_t k) {
  const Runs right{kernel, kFp8Run}, longer{&dot8_scalar, 2 * kFp8Run};
  const Runs all = faulty("fp8-promotes-every-256-products", right, longer);
  return faulty("fp8-sums-in-one-chain", all, Runs{&dot8_scalar, std::max<std::int64_t>(k, 1)});
}

constexpr std::int64_t kRows = 64;  // Packed rows stay in cache while the panels pass.

// tile += p, with the scalar model's run in the lanes that a form could not do.
template <class A, class B>
void add_run(std::int64_t rows, std::int64_t places, const Fp8View<A>& a, const Dot8Slice& slice,
             float* p, const std::uint16_t* met, float* tile) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (unsigned rest = met[i]; rest != 0; rest &= rest - 1) {
      const int j = __builtin_ctz(rest);
      p[i * kDot8Lanes + j] = fp8_run(places, a.data + i * a.pitch, 1,
                                      reinterpret_cast<const B*>(slice.codes) + j, kDot8Lanes);
    }
    for (int j = 0; j < kDot8Lanes; ++j)
      tile[i * kDot8Lanes + j] = add(tile[i * kDot8Lanes + j], p[i * kDot8Lanes + j]);
  }
}

}  // namespace

void dot8_scalar(const Dot8Slice&, int rows, const Dot8Rows&, float*, std::uint16_t* met) {
  std::fill_n(met, rows, std::uint16_t{0xffff});
}

const std::vector<Dot8Form>& dot8_forms() {
  static const std::vector<Dot8Form> forms = [] {
    std::vector<Dot8Form> list;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
      list.push_back({"avx512", dot8_avx512});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      list.push_back({"avx2", dot8_avx2});
#endif
    list.push_back({"scalar", dot8_scalar});
    return list;
  }();
  return forms;
}

template <class A, class B>
void dot8_product(Dot8Kernel kernel, std::int64_t m, std::int64_t n, std::int64_t k,
                  const Fp8View<A>& a, const Fp8View<B>& b, const Dot8Sink& sink) {
  thread_local Panels panels;
  thread_local PackedRows packed;
  panels.pack(n, k, b);
  const Runs runs = runs_of(kernel, k);
  alignas(64) float tile[kRows * kDot8Lanes], p[kRows * kDot8Lanes];
  std::uint16_t met[kRows];
  for (std::int64_t top = 0; top < m; top += kRows) {
    const std::int64_t rows = std::min(kRows, m - top);
    const Fp8View<A> block{a.data + top * a.pitch, a.pitch};
    packed.pack(rows, k, block);
    for (std::int64_t first = 0; first < n; first += kDot8Lanes) {
      std::fill_n(tile, rows * kDot8Lanes, 0.0f);
      for (std::int64_t nth = 0; nth < k; nth += runs.length) {
        const std::int64_t last = (k - 1) / runs.length * runs.length;
        const std::int64_t begin = faulty("fp8-runs-added-backwards", nth, last - nth);
        const std::int64_t end = std::min(k, begin + runs.length);
        const Dot8Slice slice = panels.slice<B>(first / kDot8Lanes, begin, end);
        runs.kernel(slice, static_cast<int>(rows), packed.from(begin), p, met);
        add_run<A, B>(rows, end - begin, {block.data + begin, block.pitch}, slice, p, met, tile);
      }
      for (std::int64_t e = 0; e < rows * kDot8Lanes; ++e)
        tile[e] = tile[e] == tile[e] ? tile[e] : quiet_nan();
      sink(top, rows, first, std::min<std::int64_t>(kDot8Lanes, n - first), tile);
    }
  }
}
template void dot8_product(Dot8Kernel, std::int64_t, std::int64_t, std::int64_t,
                           const Fp8View<e4m3>&, const Fp8View<e4m3>&, const Dot8Sink&);
template void dot8_product(Dot8Kernel, std::int64_t, std::int64_t, std::int64_t,
                           const Fp8View<e5m2>&, const Fp8View<e4m3>&, const Dot8Sink&);
template void dot8_product(Dot8Kernel, std::int64_t, std::int64_t, std::int64_t,
                           const Fp8View<e4m3>&, const Fp8View<e5m2>&, const Dot8Sink&);
template void dot8_product(Dot8Kernel, std::int64_t, std::int64_t, std::int64_t,
                           const Fp8View<e5m2>&, const Fp8View<e5m2>&, const Dot8Sink&);

}  // namespace lockstep
