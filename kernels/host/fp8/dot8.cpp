#include "kernels/host/fp8/dot8.h"

#include <algorithm>
#include <array>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// What the fast forms know of each code.
struct Decoded {
  std::array<float, 256> magnitude;
  std::array<std::int8_t, 256> exponent;
};
template <class F>
const Decoded& decoded() {
  static const Decoded table = [] {
    Decoded made{};
    for (int c = 0; c < 256; ++c) {
      const F x{static_cast<std::uint8_t>(c)};
      const bool number = !fp8_is_nan(x) && !fp8_is_infinite(x);
      at(made.magnitude, c) = number ? abs(load_fp8(x)) : 0.0f;
      at(made.exponent, c) = !number          ? kDot8Special
                             : fp8_is_zero(x) ? kDot8Zero
                                              : static_cast<std::int8_t>(fp8_binade(x));
    }
    return made;
  }();
  return table;
}
// For a planted fault: significands of subnormal codes begin with their hidden bit too.
template <class F>
const Decoded& normalised() {
  static const Decoded table = [] {
    Decoded made = decoded<F>();
    for (int c = 0; c < 256; ++c) {
      const std::uint32_t hidden = 1u << F::kFraction;
      for (std::uint32_t m = c & 0x7fu; m > 0 && m < hidden; m <<= 1) --at(made.exponent, c);
    }
    return made;
  }();
  return table;
}
template <class F>
const Decoded& decoding() {
  return *faulty("fp8-decode-normalises-subnormals", &decoded<F>(), &normalised<F>());
}
std::int64_t whole_groups(std::int64_t n) { return (n + kFp8Group - 1) / kFp8Group * kFp8Group; }

// The right factor in panels of 16 columns: what Dot8Slice points into, for all of k.
class Panels {
 public:
  template <class B>
  void pack(std::int64_t n, std::int64_t k, const Fp8View<B>& b) {
    depth_ = whole_groups(k);
    const std::int64_t columns = (n + kDot8Lanes - 1) / kDot8Lanes * kDot8Lanes;
    codes_.assign(depth_ * columns, 0);
    exponents_.assign(codes_.size(), kDot8Zero);
    const auto& exponent = decoding<B>().exponent;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t panel = j / kDot8Lanes * kDot8Lanes * depth_, lane = j % kDot8Lanes;
      std::uint8_t* code_at = codes_.data() + panel + lane;
      std::int8_t* exponent_at = exponents_.data() + panel + 4 * lane;
      const B* row = b.data + j * b.pitch;
      for (std::int64_t e = 0; e < k; ++e) {
        code_at[e * kDot8Lanes] = row[e].bits;
        exponent_at[e / 4 * 4 * kDot8Lanes + e % 4] = at(exponent, row[e].bits);
      }
    }
  }
  template <class B>
  Dot8Slice slice(std::int64_t panel, std::int64_t begin, std::int64_t end) const {
    const std::int64_t place = (panel * depth_ + begin) * kDot8Lanes;
    return {static_cast<int>(whole_groups(end - begin) / kFp8Group), codes_.data() + place,
            exponents_.data() + place, 23 - B::kFraction, fp8_power(127 - B::kBias)};
  }

 private:
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
    const std::size_t size = rows * depth_;
    if (magnitudes_.size() < size)
      magnitudes_.resize(size), offsets_.resize(size), exponents_.resize(size);
    const Decoded& table = decoding<A>();
    for (std::int64_t i = 0; i < rows; ++i) {
      const A* row = a.data + i * a.pitch;
      for (std::int64_t e = 0; e < depth_; ++e) {
        const std::uint8_t code = e < k ? row[e].bits : std::uint8_t{0};
        at(magnitudes_, i * depth_ + e) = at(table.magnitude, code);
        at(offsets_, i * depth_ + e) = 64 + (code >> 7) * 64;
        at(exponents_, i * depth_ + e) = at(table.exponent, code);
      }
    }
  }
  Dot8Rows from(std::int64_t begin) const {
    return {magnitudes_.data() + begin, offsets_.data() + begin, exponents_.data() + begin, depth_};
  }

 private:
  std::int64_t depth_ = 0;
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
