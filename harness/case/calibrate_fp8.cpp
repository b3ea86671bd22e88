#include "harness/case/calibrate_fp8.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <vector>

#include "harness/base/bits.h"
#include "kernels/core/fp8_families.h"
#include "kernels/diagnostics/fp8_dots.h"
#include "kernels/submission/submission.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRows = 48, kColumns = 40, kPlaces = 288;  // The shape of one product.

template <class F>
constexpr const char* kTypeName = std::is_same_v<F, e4m3> ? "e4m3" : "e5m2";

// Device memory for one product, whatever its types.
class DeviceProduct {
 public:
  explicit DeviceProduct(Backend& backend)
      : backend_(backend),
        stream_(backend.create_stream("calibrate")),
        a_(backend.allocate(kRows * kPlaces)),
        b_(backend.allocate(kColumns * kPlaces)),
        d_{static_cast<float*>(backend.allocate(kRows * kColumns * sizeof(float))), kRows, kColumns,
           kColumns} {}
  ~DeviceProduct() {
    for (void* const memory : {a_, b_, static_cast<void*>(d_.data)}) backend_.release(memory);
    backend_.destroy_stream(stream_);
  }
  DeviceProduct(const DeviceProduct&) = delete;
  DeviceProduct& operator=(const DeviceProduct&) = delete;

  template <class A, class B>
  std::vector<float> results(const std::vector<A>& a, const std::vector<B>& b) {
    backend_.copy(stream_, a_, a.data(), a.size(), CopyKind::host_to_device);
    backend_.copy(stream_, b_, b.data(), b.size(), CopyKind::host_to_device);
    backend_.submit(stream_,
                    Submission(Fp8Dots<A, B>{.a = tensor(static_cast<A*>(a_), kRows, kPlaces),
                                             .b = tensor(static_cast<B*>(b_), kColumns, kPlaces),
                                             .d = d_}));
    std::vector<float> got(kRows * kColumns);
    backend_.copy(stream_, got.data(), d_.data, got.size() * sizeof(float),
                  CopyKind::device_to_host);
    backend_.synchronize(stream_);
    return got;
  }

 private:
  Backend& backend_;
  BackendStream* stream_;
  void* a_;
  void* b_;
  Tensor<float> d_;
};

template <class A, class B>
float model(const A* a, const B* b, std::int64_t run) {
  float total = 0.0f;
  for (std::int64_t r = 0; r < kPlaces; r += run)
    total = add(total, fp8_run(std::min(run, kPlaces - r), a + r, 1, b + r, 1));
  return total;
}

// Two NaN are equal, whatever their bits.
bool differ(float got, float want) {
  return bits(got) != bits(want) && !(is_nan_bits(got) && is_nan_bits(want));
}

// A product with its results by the model, which compares itself with a device's.
using MadeProduct = std::function<void(DeviceProduct&, Fp8Calibration&)>;

template <class A, class B>
MadeProduct make_product(const Fp8Family& family, std::uint64_t seed, std::int64_t run) {
  Drawn draw(mix64(seed));
  std::vector<A> a(kRows * kPlaces);
  std::vector<B> b(kColumns * kPlaces);
  for (std::int64_t i = 0; i < kRows; ++i)
    draw_code_row(draw, family, seed, i, kPlaces, false, a.data() + i * kPlaces);
  for (std::int64_t j = 0; j < kColumns; ++j)
    draw_code_row(draw, family, seed + 1, j, kPlaces, true, b.data() + j * kPlaces);
  std::vector<float> want;
  for (std::int64_t e = 0; e < kRows * kColumns; ++e)
    want.push_back(
        model(a.data() + e / kColumns * kPlaces, b.data() + e % kColumns * kPlaces, run));
  return [&family, a, b, want](DeviceProduct& device, Fp8Calibration& result) {
    const std::vector<float> got = device.results(a, b);
    for (std::int64_t e = 0; e < kRows * kColumns; ++e) {
      if (!differ(got[e], want[e])) continue;
      ++result.differences;
      if (!result.first)
        result.first = {.family = family.name,
                        .types = std::string(kTypeName<A>) + " " + kTypeName<B>,
                        .row = e / kColumns,
                        .column = e % kColumns,
                        .got = got[e],
                        .want = want[e]};
    }
    result.sums += kRows * kColumns;
  };
}

}  // namespace

// The model is slow: every core of the host computes it for another product.
Fp8Calibration calibrate_fp8(Backend& backend, std::int64_t sums, std::uint64_t seed,
                             std::int64_t run) {
  Fp8Calibration result;
  DeviceProduct device(backend);
  for (std::uint64_t round = 0; result.sums < sums; ++round) {
    const std::uint64_t own = mix64(seed * 0x9E3779B97F4A7C15u + round);
    std::vector<std::future<MadeProduct>> made;
    for (const Fp8Family& family : kFp8Families) {
      const auto make = [&](auto* maker, std::uint64_t pair) {
        made.push_back(std::async(std::launch::async, maker, std::cref(family), own + pair, run));
      };
      make(&make_product<e4m3, e4m3>, 0);
      make(&make_product<e4m3, e5m2>, 2);
      make(&make_product<e5m2, e4m3>, 4);
      make(&make_product<e5m2, e5m2>, 6);
    }
    for (std::future<MadeProduct>& one : made) one.get()(device, result);
  }
  return result;
}

std::string text(const Fp8Difference& d) {
  char words[64];
  std::snprintf(words, sizeof words, "got %08x, want %08x", bits(d.got), bits(d.want));
  return "  first difference: family \"" + d.family + "\", " + d.types + ", row " +
         std::to_string(d.row) + ", column " + std::to_string(d.column) + ": " + words;
}

boost::json::object to_json(const Fp8Calibration& result) {
  boost::json::object found{{"sums", result.sums}, {"differences", result.differences}};
  if (result.first) found["first"] = text(*result.first);
  return found;
}

}  // namespace lockstep
