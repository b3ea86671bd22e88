#include "harness/case/calibrate_fp8.h"

#include <algorithm>
#include <cstdio>
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

// Device memory for one product.
class DeviceMemory {
 public:
  explicit DeviceMemory(Backend& backend)
      : backend_(backend), stream_(backend.create_stream("calibrate")) {}
  ~DeviceMemory() {
    for (void* const memory : held_) backend_.release(memory);
    backend_.destroy_stream(stream_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    held_.push_back(backend_.allocate(rows * cols * sizeof(T)));
    return tensor(static_cast<T*>(held_.back()), rows, cols);
  }
  template <class T>
  Tensor<T> put(const std::vector<T>& from, std::int64_t rows) {
    const Tensor<T> to = make<T>(rows, static_cast<std::int64_t>(from.size()) / rows);
    backend_.copy(stream_, to.data, from.data(), from.size() * sizeof(T), CopyKind::host_to_device);
    return to;
  }
  template <class Op>
  std::vector<float> results(const Op& op, const Tensor<float>& d) {
    backend_.submit(stream_, Submission(op));
    std::vector<float> got(d.size());
    backend_.copy(stream_, got.data(), d.data, got.size() * sizeof(float),
                  CopyKind::device_to_host);
    backend_.synchronize(stream_);
    return got;
  }

 private:
  Backend& backend_;
  BackendStream* stream_;
  std::vector<void*> held_;
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

template <class A, class B>
void calibrate_pair(Backend& backend, const Fp8Family& family, std::uint64_t seed, std::int64_t run,
                    Fp8Calibration& result) {
  Drawn draw(mix64(seed));
  std::vector<A> a(kRows * kPlaces);
  std::vector<B> b(kColumns * kPlaces);
  for (std::int64_t i = 0; i < kRows; ++i)
    draw_code_row(draw, family, seed, i, kPlaces, false, a.data() + i * kPlaces);
  for (std::int64_t j = 0; j < kColumns; ++j)
    draw_code_row(draw, family, seed + 1, j, kPlaces, true, b.data() + j * kPlaces);
  DeviceMemory memory(backend);
  const Tensor<float> d = memory.make<float>(kRows, kColumns);
  const std::vector<float> got = memory.results(
      Fp8Dots<A, B>{.a = memory.put(a, kRows), .b = memory.put(b, kColumns), .d = d}, d);
  for (std::int64_t e = 0; e < kRows * kColumns; ++e) {
    const std::int64_t i = e / kColumns, j = e % kColumns;
    const float want = model(a.data() + i * kPlaces, b.data() + j * kPlaces, run);
    if (!differ(got[e], want)) continue;
    ++result.differences;
    if (!result.first)
      result.first = {.family = family.name,
                      .types = std::string(kTypeName<A>) + " " + kTypeName<B>,
                      .row = i,
                      .column = j,
                      .got = got[e],
                      .want = want};
  }
  result.dots += kRows * kColumns;
}

}  // namespace

Fp8Calibration calibrate_fp8(Backend& backend, std::int64_t dots, std::uint64_t seed,
                             std::int64_t run) {
  Fp8Calibration result;
  for (std::uint64_t round = 0; result.dots < dots; ++round) {
    for (const Fp8Family& family : kFp8Families) {
      const std::uint64_t own = mix64(seed * 0x9E3779B97F4A7C15u + round);
      calibrate_pair<e4m3, e4m3>(backend, family, own, run, result);
      calibrate_pair<e4m3, e5m2>(backend, family, own + 2, run, result);
      calibrate_pair<e5m2, e4m3>(backend, family, own + 4, run, result);
      calibrate_pair<e5m2, e5m2>(backend, family, own + 6, run, result);
    }
  }
  return result;
}

std::string text(const Fp8Difference& d) {
  char words[64];
  std::snprintf(words, sizeof words, "got %08x, want %08x", bits(d.got), bits(d.want));
  return "  first difference: family \"" + d.family + "\", " + d.types + ", row " +
         std::to_string(d.row) + ", column " + std::to_string(d.column) + ": " + words;
}

}  // namespace lockstep
