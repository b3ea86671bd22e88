#include "harness/case/calibrate.h"

#include <algorithm>
#include <cstdio>
#include <future>
#include <thread>
#include <vector>

#include "harness/base/bits.h"
#include "kernels/core/fda_families.h"
#include "kernels/diagnostics/tensor_core.h"

namespace lockstep {
namespace {

constexpr std::int64_t kTileDots = kDotRows * kDotColumns;
constexpr std::int64_t kMostTiles = 1024;  // The most that one submission takes.

// One submission's tiles, each of one family, and what the model makes of them.
struct Batch {
  std::vector<bf16> a, b;
  std::vector<float> c, want;
};

const Family& family_of(std::int64_t tile) {
  return kFamilies[static_cast<std::size_t>(tile) % std::size(kFamilies)];
}

bf16 narrow(float x) { return st<bf16>(x); }

// Rows of `to`; in a family that cancels, every second place undoes the one before: in a always, in
// b mostly.
void draw_rows(Drawn& draw, const Family& family, std::int64_t rows, bool right, bf16* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < kDotDepth; ++k, ++to) {
      const bool undoes = family.cancels && k % 2 != 0;
      if (undoes && !right) {
        *to = narrow(neg(load(to[-1])));
      } else {
        *to = undoes && draw.below(3) != 0 ? to[-1] : narrow(draw.operand(family));
      }
    }
  }
}

std::array<float, kDotDepth> widened_row(const std::vector<bf16>& x, std::int64_t row) {
  std::array<float, kDotDepth> values{};
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = load(x[static_cast<std::size_t>(row * kDotDepth) + k]);
  return values;
}

Batch make_batch(const TensorCore& model, std::int64_t tiles, std::uint64_t seed,
                 std::int64_t index) {
  Batch batch;
  batch.a.resize(tiles * kDotRows * kDotDepth);
  batch.b.resize(tiles * kDotColumns * kDotDepth);
  batch.c.resize(tiles * kTileDots);
  batch.want.resize(batch.c.size());
  Drawn draw(mix64(seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(index) + 1));
  for (std::int64_t t = 0; t < tiles; ++t) {
    const Family& family = family_of(t);
    draw_rows(draw, family, kDotRows, false, batch.a.data() + t * kDotRows * kDotDepth);
    draw_rows(draw, family, kDotColumns, true, batch.b.data() + t * kDotColumns * kDotDepth);
    for (std::int64_t e = t * kTileDots; e < (t + 1) * kTileDots; ++e) {
      const std::size_t at = e;
      const auto a = widened_row(batch.a, e / kDotColumns);
      const auto b = widened_row(batch.b, t * kDotColumns + e % kDotColumns);
      batch.c[at] = draw.start(family);
      batch.want[at] = fda_chain(model, 0, kDotDepth, a.data(), 1, b.data(), 1, batch.c[at]);
    }
  }
  return batch;
}

// The operands of one submission on the device.
class DeviceDots {
 public:
  DeviceDots(Backend& backend, std::int64_t tiles)
      : backend_(backend),
        stream_(backend.create_stream("calibrate")),
        a_(make<bf16>(tiles * kDotRows, kDotDepth)),
        b_(make<bf16>(tiles * kDotColumns, kDotDepth)),
        c_(make<float>(tiles * kDotRows, kDotColumns)),
        d_(make<float>(tiles * kDotRows, kDotColumns)) {}
  ~DeviceDots() {
    for (void* memory : {static_cast<void*>(a_.data), static_cast<void*>(b_.data),
                         static_cast<void*>(c_.data), static_cast<void*>(d_.data)}) {
      backend_.release(memory);
    }
    backend_.destroy_stream(stream_);
  }
  DeviceDots(const DeviceDots&) = delete;
  DeviceDots& operator=(const DeviceDots&) = delete;

  std::vector<float> results(const Batch& batch) {
    put(a_.data, batch.a);
    put(b_.data, batch.b);
    put(c_.data, batch.c);
    backend_.submit(stream_, Submission(TensorCoreDots{.a = a_, .b = b_, .c = c_, .d = d_}));
    std::vector<float> got(batch.c.size());
    backend_.copy(stream_, got.data(), d_.data, got.size() * sizeof(float),
                  CopyKind::device_to_host);
    backend_.synchronize(stream_);
    return got;
  }

 private:
  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    return tensor(
        static_cast<T*>(backend_.allocate(static_cast<std::size_t>(rows * cols) * sizeof(T))), rows,
        cols);
  }
  template <class T>
  void put(void* to, const std::vector<T>& from) {
    backend_.copy(stream_, to, from.data(), from.size() * sizeof(T), CopyKind::host_to_device);
  }
  Backend& backend_;
  BackendStream* stream_;
  Tensor<bf16> a_, b_;
  Tensor<float> c_, d_;
};

// Two NaN are equal, whatever their bits.
bool differ(float got, float want) {
  return bits(got) != bits(want) && !(is_nan_bits(got) && is_nan_bits(want));
}

void compare(const Batch& batch, const std::vector<float>& got, Calibration& result) {
  for (std::size_t e = 0; e < got.size(); ++e) {
    if (!differ(got[e], batch.want[e])) continue;
    ++result.differences;
    if (result.first) continue;
    const auto at = static_cast<std::int64_t>(e);
    const std::int64_t tile = at / kTileDots;
    result.first = {.dot = result.dots + at,
                    .family = family_of(tile).name,
                    .a = widened_row(batch.a, at / kDotColumns),
                    .b = widened_row(batch.b, tile * kDotColumns + at % kDotColumns),
                    .c = batch.c[e],
                    .got = got[e],
                    .want = batch.want[e]};
  }
  result.dots += static_cast<std::int64_t>(got.size());
}

}  // namespace

std::string architecture_of(const DeviceInfo& device) {
  return "sm_" + std::to_string(device.kind == "cuda" ? device.compute_capability : 90);
}
std::optional<TensorCore> constants_of(const DeviceInfo& device) {
  return tensor_core(architecture_of(device));
}

Calibration calibrate(Backend& backend, const TensorCore& model, std::int64_t dots,
                      std::uint64_t seed) {
  Calibration result;
  const std::int64_t all = (dots + kTileDots - 1) / kTileDots;
  const std::int64_t tiles = std::clamp<std::int64_t>(all, std::size(kFamilies), kMostTiles);
  DeviceDots device(backend, tiles);
  const std::int64_t batches = (all + tiles - 1) / tiles;
  const std::int64_t at_once = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  for (std::int64_t first = 0; first < batches; first += at_once) {
    std::vector<std::future<Batch>> made;
    for (std::int64_t i = first; i < std::min(batches, first + at_once); ++i) {
      made.push_back(std::async(std::launch::async, make_batch, model, tiles, seed, i));
    }
    for (std::future<Batch>& one : made) {
      const Batch batch = one.get();
      compare(batch, device.results(batch), result);
    }
  }
  return result;
}

namespace {

std::string word(float x) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", bits(x));
  return text;
}
std::string words(const std::array<float, 16>& x) {
  std::string text;
  for (const float one : x) text += (text.empty() ? "" : " ") + word(one).substr(0, 4);
  return text;
}

}  // namespace

std::string text(const DotDifference& d) {
  return "  first difference: dot " + std::to_string(d.dot) + ", family \"" + d.family +
         "\"\n    a    " + words(d.a) + "\n    b    " + words(d.b) + "\n    c    " + word(d.c) +
         "\n    got  " + word(d.got) + "\n    want " + word(d.want);
}

boost::json::object to_json(const Calibration& result, const std::string& architecture,
                            const TensorCore& model) {
  boost::json::object found{{"architecture", architecture}, {"fraction_bits", model.fraction_bits},
                            {"group", model.group},         {"min_exponent", model.min_exponent},
                            {"dots", result.dots},          {"differences", result.differences}};
  if (result.first) {
    const DotDifference& d = *result.first;
    found["first"] = boost::json::object{
        {"dot", d.dot},   {"family", d.family}, {"a", words(d.a)},     {"b", words(d.b)},
        {"c", word(d.c)}, {"got", word(d.got)}, {"want", word(d.want)}};
  }
  return found;
}

}  // namespace lockstep
