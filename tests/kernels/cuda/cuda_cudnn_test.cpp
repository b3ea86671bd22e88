// Attention by cuDNN on a GPU: near the contract's, and the same bits whatever the run, the
// capacity, the place in the pack, eager or replayed.
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops/attention.h"
#include "kernels/ops/cudnn_attention.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

struct Documents {
  std::vector<std::int32_t> lengths;
  std::int32_t gap = 0;  // Rows of no document after every document.
};
struct Heads {
  std::int32_t heads, kv_heads, head_dim;
  std::int64_t fused() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t width() const { return heads * head_dim; }
};

// About normal; a function of document, row in it, and column, so that a document has the same rows
// in any pack.
float number(std::uint64_t document, std::uint64_t row, std::uint64_t column,
             std::uint64_t stream) {
  float sum = -2.0f;
  const std::uint64_t key = ((document * 8192 + row) * 8192 + column) * 2 + stream;
  for (std::uint64_t k = 0; k < 4; ++k)
    sum += static_cast<float>(mix64(4 * key + k) >> 40) * 0x1p-24f;
  return 1.7f * sum;
}

// A pack's operands on the host: rows of no document are NaN.
struct Rows {
  Rows(const Documents& documents, std::int64_t rows_, const Heads& heads) : rows(rows_) {
    document.assign(static_cast<std::size_t>(rows), -1);
    std::int32_t at = 0;
    for (std::size_t d = 0; d < documents.lengths.size(); ++d) {
      std::fill_n(document.begin() + at, documents.lengths[d], static_cast<std::int32_t>(d));
      at += documents.lengths[d] + (documents.lengths[d] > 0 ? documents.gap : 0);
      cu_seqlens.push_back(cu_seqlens.back() + documents.lengths[d]);
      cu_seqlens_padded.push_back(at);
    }
    qkv = drawn(heads.fused(), 0), dout = drawn(heads.width(), 1);
  }
  std::vector<bf16> drawn(std::int64_t cols, std::uint64_t stream) const {
    std::vector<bf16> x;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int32_t d = document[static_cast<std::size_t>(i)];
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto row = static_cast<std::uint64_t>(
            d < 0 ? 0 : i - cu_seqlens_padded[static_cast<std::size_t>(d)]);
        x.push_back(d < 0 ? bf16{0x7fff}
                          : st<bf16>(number(static_cast<std::uint64_t>(d), row,
                                            static_cast<std::uint64_t>(c), stream)));
      }
    }
    return x;
  }
  std::int64_t rows;
  std::vector<std::int32_t> cu_seqlens{0}, cu_seqlens_padded{0}, document;
  std::vector<bf16> qkv, dout;
};

struct Results {
  std::vector<bf16> o, dqkv;
  std::vector<float> lse;
};

template <class T>
Tensor<T> view(std::vector<T>& x, std::int64_t rows, std::int64_t cols) {
  return tensor(x.data(), rows, cols);
}

Results on_host(Rows pack, Documents documents, const Heads& h) {
  const auto capacity = std::ssize(documents.lengths);
  Results r;
  r.o.resize(static_cast<std::size_t>(pack.rows * h.width()));
  r.dqkv.resize(pack.qkv.size());
  r.lse.resize(static_cast<std::size_t>(pack.rows * h.heads));
  std::vector<float> delta(r.lse);
  std::int32_t next[2] = {};
  run(HostQueue{},
      AttentionForward<bf16>{.qkv = view(pack.qkv, pack.rows, h.fused()),
                             .cu_seqlens = view(pack.cu_seqlens, 1, capacity + 1),
                             .cu_seqlens_padded = view(pack.cu_seqlens_padded, 1, capacity + 1),
                             .row_document = view(pack.document, 1, pack.rows),
                             .o = view(r.o, pack.rows, h.width()),
                             .lse = view(r.lse, pack.rows, h.heads),
                             .heads = h.heads,
                             .kv_heads = h.kv_heads,
                             .head_dim = h.head_dim});
  run(HostQueue{},
      AttentionBackward<bf16>{.qkv = view(pack.qkv, pack.rows, h.fused()),
                              .o = view(r.o, pack.rows, h.width()),
                              .lse = view(r.lse, pack.rows, h.heads),
                              .dout = view(pack.dout, pack.rows, h.width()),
                              .cu_seqlens = view(pack.cu_seqlens, 1, capacity + 1),
                              .cu_seqlens_padded = view(pack.cu_seqlens_padded, 1, capacity + 1),
                              .row_document = view(pack.document, 1, pack.rows),
                              .delta = view(delta, pack.rows, h.heads),
                              .next_tile = tensor(next, 1, 2),
                              .dqkv = view(r.dqkv, pack.rows, h.fused()),
                              .heads = h.heads,
                              .kv_heads = h.kv_heads,
                              .head_dim = h.head_dim});
  return r;
}

// Buffers of one shape on the GPU, planned once; packs come and go in them.
class OnCudnn {
 public:
  OnCudnn(std::int64_t rows, std::int64_t capacity, const Heads& h,
          std::int64_t max_seqlen = AttentionClasses::kNoBound)
      : classes_(rows, capacity, max_seqlen), capacity_(capacity) {
    forward_ = {.qkv = make<bf16>(rows, h.fused()),
                .lengths = make<std::int32_t>(1, classes_.slots),
                .offsets = make<std::int64_t>(3, classes_.offsets()),
                .row_document = make<std::int32_t>(1, rows),
                .o = make<bf16>(rows, h.width()),
                .lse = make<float>(rows, h.heads),
                .workspace = {},
                .capacity = capacity,
                .max_seqlen = max_seqlen,
                .heads = h.heads,
                .kv_heads = h.kv_heads,
                .head_dim = h.head_dim};
    backward_ = {.qkv = forward_.qkv,
                 .o = forward_.o,
                 .lse = forward_.lse,
                 .dout = make<bf16>(rows, h.width()),
                 .lengths = forward_.lengths,
                 .offsets = forward_.offsets,
                 .row_document = forward_.row_document,
                 .dqkv = make<bf16>(rows, h.fused()),
                 .workspace = {},
                 .capacity = capacity,
                 .max_seqlen = max_seqlen,
                 .heads = h.heads,
                 .kv_heads = h.kv_heads,
                 .head_dim = h.head_dim};
    tables_ = {.cu_seqlens = make<std::int32_t>(1, capacity + 1),
               .cu_seqlens_padded = make<std::int32_t>(1, capacity + 1),
               .lengths = writable(forward_.lengths),
               .offsets = writable(forward_.offsets),
               .rows = rows,
               .max_seqlen = max_seqlen,
               .heads = h.heads,
               .kv_heads = h.kv_heads,
               .head_dim = h.head_dim};
    const std::int64_t forward_bytes = gpu().workspace_bytes(Submission(forward_));
    backward_bytes_ = gpu().workspace_bytes(Submission(backward_));
    forward_.workspace = backward_.workspace =
        make<std::uint8_t>(1, std::max(forward_bytes, backward_bytes_));
  }
  ~OnCudnn() {
    if (graph_ != nullptr) gpu().destroy_graph(graph_);
    for (void* memory : memory_) gpu().release(memory);
  }
  OnCudnn(const OnCudnn&) = delete;
  OnCudnn& operator=(const OnCudnn&) = delete;

  std::int64_t backward_bytes() const { return backward_bytes_; }
  std::int64_t reckoned_bytes() const { return reckoned_workspace(backward_); }

  Results eager(const Rows& pack, const Documents& documents) {
    load(pack, documents);
    submit();
    return results();
  }
  // One graph for all packs.
  Results replayed(const Rows& pack, const Documents& documents) {
    if (graph_ == nullptr) {
      gpu().begin_capture(stream_.get());
      submit();
      graph_ = gpu().end_capture(stream_.get());
    }
    load(pack, documents);
    gpu().launch(graph_, stream_.get());
    return results();
  }

 private:
  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    memory_.push_back(gpu().allocate(static_cast<std::size_t>(rows * cols) * sizeof(T)));
    return tensor(static_cast<T*>(memory_.back()), rows, cols);
  }
  template <class T>
  static Tensor<T> writable(In<T> x) {
    return {const_cast<T*>(x.data), x.rows, x.cols, x.pitch};
  }
  template <class T>
  void put(In<T> to, const std::vector<T>& from) {
    gpu().copy(stream_.get(), const_cast<T*>(to.data), from.data(), from.size() * sizeof(T),
               CopyKind::host_to_device);
    gpu().synchronize(stream_.get());
  }
  template <class T>
  std::vector<T> get(In<T> from) {
    std::vector<T> to(static_cast<std::size_t>(from.rows * from.cols));
    gpu().copy(stream_.get(), to.data(), from.data, to.size() * sizeof(T),
               CopyKind::device_to_host);
    gpu().synchronize(stream_.get());
    return to;
  }
  // Undefined memory differs from run to run.
  void load(const Rows& pack, const Documents& documents) {
    ++garbage_;
    gpu().fill(stream_.get(), forward_.o.data, garbage_,
               static_cast<std::size_t>(2 * forward_.o.rows * forward_.o.cols));
    gpu().fill(stream_.get(), backward_.dqkv.data, 0xff,
               static_cast<std::size_t>(2 * backward_.dqkv.rows * backward_.dqkv.cols));
    gpu().fill(stream_.get(), forward_.workspace.data, static_cast<std::uint8_t>(37 * garbage_),
               static_cast<std::size_t>(forward_.workspace.cols));
    std::vector<std::int32_t> tokens = pack.cu_seqlens, padded = pack.cu_seqlens_padded;
    tokens.resize(static_cast<std::size_t>(capacity_ + 1), tokens.back());
    padded.resize(tokens.size(), static_cast<std::int32_t>(pack.rows));
    put<bf16>(forward_.qkv, pack.qkv);
    put<bf16>(backward_.dout, pack.dout);
    put<std::int32_t>(forward_.row_document, pack.document);
    put<std::int32_t>(tables_.cu_seqlens, tokens);
    put<std::int32_t>(tables_.cu_seqlens_padded, padded);
  }
  void submit() {
    gpu().submit(stream_.get(), Submission(tables_));
    gpu().submit(stream_.get(), Submission(forward_));
    gpu().submit(stream_.get(), Submission(backward_));
  }
  Results results() {
    return {get<bf16>(forward_.o), get<bf16>(backward_.dqkv), get<float>(forward_.lse)};
  }

  GpuStream stream_;
  AttentionClasses classes_;
  std::int64_t capacity_;
  std::vector<void*> memory_;
  AttentionTables tables_;
  CudnnAttentionForward forward_;
  CudnnAttentionBackward backward_;
  std::int64_t backward_bytes_ = 0;
  BackendGraph* graph_ = nullptr;
  std::uint8_t garbage_ = 0x40;
};

void expect_same(const Results& got, const Results& want) {
  EXPECT_EQ(std::memcmp(got.o.data(), want.o.data(), want.o.size() * sizeof(bf16)), 0) << "o";
  EXPECT_EQ(std::memcmp(got.lse.data(), want.lse.data(), want.lse.size() * sizeof(float)), 0)
      << "lse";
  EXPECT_EQ(std::memcmp(got.dqkv.data(), want.dqkv.data(), want.dqkv.size() * sizeof(bf16)), 0)
      << "dqkv";
}

float as_float(float x) { return x; }
float as_float(bf16 x) { return load(x); }

// |got - want| / |want| over columns [from, end) of rows of `cols`, in the euclidean norm; a NaN is
// no number.
template <class T>
double relative_error(std::span<const T> got, std::span<const T> want, std::int64_t cols,
                      std::int64_t from, std::int64_t end) {
  double difference = 0, all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % cols;
    if (column < from || column >= end) continue;
    const double x = as_float(got[i]), y = as_float(want[i]);
    difference += (x - y) * (x - y);
    all += y * y;
  }
  return std::sqrt(difference / all);
}

constexpr Heads kWide{4, 2, 128};
const Documents kMixed{{300, 65, 1, 0, 640, 129, 64, 700, 33}, 0};
constexpr std::int64_t kRows = 2048;

class CudnnOnAGpu : public testing::TestWithParam<Heads> {};

// Both sides round p, ds and their results to bf16, 8 bits each, at other places: an error of 2^-8
// in every term is the most that either has, and in the norm over a tensor errors of many terms do
// not add up to more than one of each side.
TEST_P(CudnnOnAGpu, IsNearTheContract) {
  const Heads h = GetParam();
  for (const std::int32_t gap : {0, 5}) {
    const Documents documents{kMixed.lengths, gap};
    const Rows pack(documents, kRows, h);
    const Results want = on_host(pack, documents, h);
    OnCudnn cudnn(kRows, 12, h);
    const Results got = cudnn.eager(pack, documents);
    constexpr double kBound = 2 * 0x1p-8;
    const std::int64_t k = h.width(), v = k + h.kv_heads * h.head_dim;
    const auto near = [&](const char* what, double error) {
      std::printf("%s, %d heads of %d: relative error %.2e\n", what, h.heads, h.head_dim, error);
      EXPECT_TRUE(error <= kBound) << what << " " << error;
    };
    near("o", relative_error<bf16>(got.o, want.o, h.width(), 0, h.width()));
    near("lse", relative_error<float>(got.lse, want.lse, h.heads, 0, h.heads));
    near("dq", relative_error<bf16>(got.dqkv, want.dqkv, h.fused(), 0, k));
    near("dk", relative_error<bf16>(got.dqkv, want.dqkv, h.fused(), k, v));
    near("dv", relative_error<bf16>(got.dqkv, want.dqkv, h.fused(), v, h.fused()));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnOnAGpu,
                         testing::Values(kWide, Heads{4, 1, 64}, Heads{2, 2, 32}, Heads{2, 1, 16}),
                         [](const auto& info) {
                           return "of" + std::to_string(info.param.head_dim);
                         });

TEST(CudnnOnAGpu, RowsOfNoDocumentGetZero) {
  const Documents documents{{100, 3}, 7};
  const Rows pack(documents, 256, kWide);
  OnCudnn cudnn(256, 4, kWide);
  const Results got = cudnn.eager(pack, documents);
  for (std::int64_t i = 0; i < 256; ++i) {
    if (pack.document[static_cast<std::size_t>(i)] >= 0) continue;
    for (std::int64_t c = 0; c < kWide.fused(); ++c) {
      ASSERT_EQ(bits(load(got.dqkv[static_cast<std::size_t>(i * kWide.fused() + c)])), 0u) << i;
    }
    for (std::int64_t c = 0; c < kWide.width(); ++c) {
      ASSERT_EQ(bits(load(got.o[static_cast<std::size_t>(i * kWide.width() + c)])), 0u) << i;
    }
    for (std::int64_t c = 0; c < kWide.heads; ++c) {
      ASSERT_EQ(bits(got.lse[static_cast<std::size_t>(i * kWide.heads + c)]), 0u) << i;
    }
  }
}

TEST(CudnnOnAGpu, RunsAgreeInBits) {
  const Rows pack(kMixed, kRows, kWide);
  OnCudnn cudnn(kRows, 12, kWide);
  const Results first = cudnn.eager(pack, kMixed);
  for (int i = 0; i < 8; ++i) expect_same(cudnn.eager(pack, kMixed), first);
}

TEST(CudnnOnAGpu, CapacityChangesNoBit) {
  const Rows pack(kMixed, kRows, kWide);
  const Results want = OnCudnn(kRows, 9, kWide).eager(pack, kMixed);
  for (const std::int64_t capacity : {10, 64, 300})
    expect_same(OnCudnn(kRows, capacity, kWide).eager(pack, kMixed), want);
}

TEST(CudnnOnAGpu, ABoundOfOneRowChangesNoBit) {
  const Documents documents{std::vector<std::int32_t>(16, 1), 3};
  const Rows pack(documents, 64, kWide);
  expect_same(OnCudnn(64, 16, kWide, 1).eager(pack, documents),
              OnCudnn(64, 16, kWide).eager(pack, documents));
}

// One graph, captured before any of these packs was there.
TEST(CudnnOnAGpu, AGraphReplaysWhatAnEagerRunDoes) {
  OnCudnn graph(kRows, 64, kWide), eager(kRows, 64, kWide);
  const Documents packs[] = {kMixed,  {std::vector<std::int32_t>(40, 50), 1}, {{2048}, 0},
                             {{}, 0}, {{1, 0, 2, 1000, 64, 65, 63}, 3},       kMixed};
  for (const Documents& documents : packs) {
    const Rows pack(documents, kRows, kWide);
    expect_same(graph.replayed(pack, documents), eager.eager(pack, documents));
  }
}

TEST(CudnnOnAGpu, WorkspaceIsWhatWasReckoned) {
  const auto print = [](const char* what, const OnCudnn& cudnn) {
    std::printf("%s: backward %lld bytes, reckoned %lld\n", what,
                static_cast<long long>(cudnn.backward_bytes()),
                static_cast<long long>(cudnn.reckoned_bytes()));
    EXPECT_LE(cudnn.backward_bytes(), cudnn.reckoned_bytes());
    EXPECT_GE(cudnn.backward_bytes(), cudnn.reckoned_bytes() / 100 * 99);
  };
  print("2048 rows, capacity 12, 4 heads of 128", OnCudnn(kRows, 12, kWide));
  print("8192 rows, capacity 64, 16 heads of 128", OnCudnn(8192, 64, {16, 4, 128}));
}

TEST(CudnnOnAGpu, WhatWasNotPlannedIsRefused) {
  std::byte* const memory = static_cast<std::byte*>(gpu().allocate(1 << 22));
  const AttentionClasses classes(64, 3);
  const CudnnAttentionForward op{
      .qkv = tensor(reinterpret_cast<bf16*>(memory), 64, 3 * 24),
      .lengths = tensor(reinterpret_cast<std::int32_t*>(memory), 1, classes.slots),
      .offsets = tensor(reinterpret_cast<std::int64_t*>(memory), 3, classes.offsets()),
      .row_document = tensor(reinterpret_cast<std::int32_t*>(memory), 1, 64),
      .o = tensor(reinterpret_cast<bf16*>(memory), 64, 24),
      .lse = tensor(reinterpret_cast<float*>(memory), 64, 1),
      .workspace = tensor(reinterpret_cast<std::uint8_t*>(memory), 1, 1 << 20),
      .capacity = 3,
      .head_dim = 24};
  const GpuStream stream;
  EXPECT_THROW(gpu().submit(stream.get(), Submission(op)), DeviceError);
  gpu().synchronize(stream.get());
  gpu().release(memory);
}

}  // namespace
}  // namespace lockstep
