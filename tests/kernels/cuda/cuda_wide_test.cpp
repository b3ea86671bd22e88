// The bf16 ops that walk whole rows have the bytes of the host at the widths of models, where they
// take other paths than at those that any_op draws.
#include "kernels/ops/conv.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pack_metadata.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/cuda/drawn_rows.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRows = 300;

template <class Make>
void expect_host_bytes(const std::string& name, std::int64_t rows, Make make) {
  expect_same_bytes(name, at_once, [&](OpMemory& memory) {
    Operands o(memory, rows, 20261121);
    return Submission(make(o));
  });
}
template <class Make>
void expect_host_bytes(const std::string& name, Make make) {
  expect_host_bytes(name, kRows, make);
}

// Documents of 49 rows with a row of none between two.
Tensor<std::int32_t> many_documents(Operands& o) {
  return o.rows_of([](std::int64_t i) { return i % 50 == 49 ? -1 : i / 50; });
}
Tensor<std::int32_t> their_positions(Operands& o) {
  return o.rows_of([](std::int64_t i) { return i % 50 == 49 ? 0 : i % 50; });
}

// The gates have arguments from where all vanishes to where all saturates: sums of four products of
// up to 60 each.
ConvBackward<bf16> conv_backward(Operands& o, std::int64_t rows, std::int64_t channels,
                                 Tensor<std::int32_t> documents, Tensor<std::int32_t> positions) {
  return {.x = o.values<bf16>(rows, channels, -12, 12),
          .weight = o.values<float>(channels, 4, -5, 5),
          .bias = o.values<float>(1, channels, -1, 1),
          .dy = o.values<bf16>(rows, channels, -1, 1),
          .row_document = documents,
          .row_position = positions,
          .dpre = o.out<float>(rows, channels),
          .dx = o.out<bf16>(rows, channels),
          .dweight = o.out<float>(channels, 4),
          .dbias = o.out<float>(1, channels)};
}

TEST(WideRowsOnAGpu, ConvolutionsHaveTheBytesOfTheHost) {
  for (const std::int64_t channels : {8, 520, 1024}) {
    expect_host_bytes("forward of " + std::to_string(channels), [&](Operands& o) {
      return ConvForward<bf16>{.x = o.values<bf16>(kRows, channels, -12, 12),
                               .weight = o.values<float>(channels, 4, -5, 5),
                               .bias = o.values<float>(1, channels, -1, 1),
                               .row_document = o.documents(),
                               .row_position = o.positions(),
                               .y = o.out<bf16>(kRows, channels)};
    });
    expect_host_bytes("backward of " + std::to_string(channels), [&](Operands& o) {
      return conv_backward(o, kRows, channels, o.documents(), o.positions());
    });
  }
}

// More walks than multiprocessors run at once take more channels each.
TEST(WideRowsOnAGpu, ConvolutionsOfManyWalksHaveTheBytesOfTheHost) {
  constexpr std::int64_t kMany = 1100, kChannels = 8200;
  expect_host_bytes("backward", kMany, [&](Operands& o) {
    return conv_backward(o, kMany, kChannels, many_documents(o), their_positions(o));
  });
}

// More slots than a block places at once, empty ones among them, and more or fewer chunks than
// rows.
TEST(WideRowsOnAGpu, MetadataOfManyDocumentsHasTheBytesOfTheHost) {
  constexpr std::int64_t kSlots = 700, kLong = 6000;
  for (const std::int32_t chunk : {1, 64}) {
    for (const std::int32_t used : {0, 256, 257, 640}) {
      for (const bool extends : {false, true}) {
        expect_host_bytes(std::to_string(used) + " documents", kLong, [&](Operands& o) {
          const std::int64_t chunks = (kLong + chunk - 1) / chunk + kSlots;
          const auto word = [](std::int64_t i) {
            return static_cast<std::uint32_t>(mix64(static_cast<std::uint64_t>(i)) >> 32);
          };
          return PackMetadata{
              .lengths = o.words<std::int32_t>(
                  kSlots, [&](std::int64_t i) { return word(i) % 3 * (word(i + 999) % 9); }),
              .numbers = o.words<std::int32_t>(kSlots, [&](std::int64_t i) { return 7 * i; }),
              .count = o.words<std::int32_t>(1, [&](std::int64_t) { return used; }),
              .cu_seqlens = o.words<std::int32_t>(kSlots + 1),
              .cu_seqlens_padded = o.words<std::int32_t>(kSlots + 1),
              .row_document = o.words<std::int32_t>(kLong),
              .row_position = o.words<std::int32_t>(kLong),
              .row_number = o.words<std::int32_t>(kLong),
              .chunk_document = o.words<std::int32_t>(chunks),
              .chunk_start = o.words<std::int32_t>(chunks),
              .chunk_rows = o.words<std::int32_t>(chunks),
              .gaps = 1,
              .align = 2,
              .chunk = chunk,
              .extend_last = extends};
        });
      }
    }
  }
}

TEST(WideRowsOnAGpu, RmsNormsHaveTheBytesOfTheHost) {
  for (const std::int64_t d : {512, 520, 2040, 2048, 2056, 4096}) {
    expect_host_bytes("forward of " + std::to_string(d), [&](Operands& o) {
      return RmsNormForward<bf16>{.x = o.values<bf16>(kRows, d, -2, 2),
                                  .gain = o.values<float>(1, d, -2, 2),
                                  .row_document = o.documents(),
                                  .y = o.out<bf16>(kRows, d),
                                  .rstd = o.out<float>(1, kRows)};
    });
    for (const bool residual : {false, true}) {
      expect_host_bytes("backward of " + std::to_string(d), [&](Operands& o) {
        return RmsNormBackward<bf16>{
            .x = o.values<bf16>(kRows, d, -2, 2),
            .rstd = o.values<float>(1, kRows, 0.5f, 2),
            .gain = o.values<float>(1, d, -2, 2),
            .dy = o.values<bf16>(kRows, d, -1, 1),
            .dresidual = residual ? o.values<bf16>(kRows, d, -1, 1) : Tensor<bf16>{},
            .row_document = o.documents(),
            .dx = o.out<bf16>(kRows, d),
            .dgain = o.out<float>(1, d),
            .partials = o.out<float>((kRows + 31) / 32, d),
            .total = residual ? o.values<float>(1, d, -1, 1) : Tensor<float>{}};
      });
    }
  }
}

TEST(WideRowsOnAGpu, GatedNormsHaveTheBytesOfTheHost) {
  constexpr std::int64_t kGroups = 2;
  for (const std::int64_t width : {128, 136, 512, 1016, 1024}) {
    const std::int64_t d = kGroups * width;
    expect_host_bytes("forward of " + std::to_string(width), [&](Operands& o) {
      return GatedNormForward<bf16>{.y = o.values<bf16>(kRows, d, -2, 2),
                                    .z = o.values<bf16>(kRows, d, -120, 30),
                                    .gain = o.values<float>(1, d, -2, 2),
                                    .row_document = o.documents(),
                                    .o = o.out<bf16>(kRows, d),
                                    .rstd = o.out<float>(kRows, kGroups),
                                    .groups = kGroups};
    });
    expect_host_bytes("backward of " + std::to_string(width), [&](Operands& o) {
      return GatedNormBackward<bf16>{.y = o.values<bf16>(kRows, d, -2, 2),
                                     .z = o.values<bf16>(kRows, d, -120, 30),
                                     .gain = o.values<float>(1, d, -2, 2),
                                     .rstd = o.values<float>(kRows, kGroups, 0.5f, 2),
                                     .dout = o.values<bf16>(kRows, d, -1, 1),
                                     .row_document = o.documents(),
                                     .dy = o.out<bf16>(kRows, d),
                                     .dz = o.out<bf16>(kRows, d),
                                     .dgain = o.out<float>(1, d),
                                     .groups = kGroups,
                                     .partials = o.out<float>((kRows + 31) / 32, d)};
    });
  }
}

// Groups that a warp walks down, for blocks of few rows and of all, and of any number of warps; z
// and dz as the engine has them, which are columns of a wider view.
TEST(WideRowsOnAGpu, GatedNormsOfWalksHaveTheBytesOfTheHost) {
  constexpr std::int64_t kWidth = 512, kBefore = 64;
  for (const std::int64_t groups : {1, 3}) {
    for (const std::int64_t rows : {1, 31, 32, 33, 150, 288}) {
      const std::int64_t d = groups * kWidth;
      expect_host_bytes("backward of " + std::to_string(rows) + " rows", rows, [&](Operands& o) {
        return GatedNormBackward<bf16>{
            .y = o.values<bf16>(rows, d, -2, 2),
            .z = o.values<bf16>(rows, d + kBefore, -120, 30).columns(kBefore, d),
            .gain = o.values<float>(1, d, -2, 2),
            .rstd = o.values<float>(rows, groups, 0.5f, 2),
            .dout = o.values<bf16>(rows, d, -1, 1),
            .row_document = o.documents(),
            .dy = o.out<bf16>(rows, d),
            .dz = o.out<bf16>(rows, d + kBefore).columns(kBefore, d),
            .dgain = o.out<float>(1, d),
            .groups = static_cast<std::int32_t>(groups),
            .partials = o.out<float>((rows + 31) / 32, d),
            .total = groups > 1 ? o.values<float>(1, d, -1, 1) : Tensor<float>{}};
      });
    }
  }
}

// Logits within 87 of the maximum, and far beyond; so many rows that blocks take several.
TEST(WideRowsOnAGpu, CrossEntropiesHaveTheBytesOfTheHost) {
  constexpr std::int64_t kLogits = 1000;
  for (const std::int64_t vocabulary : {5000, 8192, 9000, 32768}) {
    for (const float low : {-20.0f, -200.0f}) {
      expect_host_bytes("forward of " + std::to_string(vocabulary), kLogits, [&](Operands& o) {
        return CrossEntropyForward<bf16>{.logits = o.values<bf16>(kLogits, vocabulary, low, 20),
                                         .targets = o.rows_of([&](std::int64_t i) {
                                           return i % 7 == 0 ? -1 : 31 * i % vocabulary;
                                         }),
                                         .loss = o.out<float>(1, kLogits),
                                         .maximum = o.out<float>(1, kLogits),
                                         .sum = o.out<float>(1, kLogits)};
      });
    }
  }
}

TEST(WideRowsOnAGpu, SumsOfSquaresHaveTheBytesOfTheHost) {
  for (const std::int64_t cols : {1, 4, 5, 124, 132, 1028, 2048, 4100}) {
    expect_host_bytes("rows of " + std::to_string(cols), [&](Operands& o) {
      return GradientRowSums{.g = o.values<float>(kRows, cols, -1, 1),
                             .sums = o.out<float>(1, kRows)};
    });
  }
}

TEST(WideRowsOnAGpu, NormsOfGradientsHaveTheBytesOfTheHost) {
  for (const std::int64_t rows : {1, 1023, 1026, 16384, 16388, 50000}) {
    expect_host_bytes(std::to_string(rows) + " rows", [&](Operands& o) {
      return GradientNorm{
          .sums = o.values<float>(1, rows, 0, 1), .norm = o.out<float>(1, 2), .max_norm = 1};
    });
  }
}

// Without gaps, of fours and not; with a copy and without.
TEST(WideRowsOnAGpu, WeightUpdatesHaveTheBytesOfTheHost) {
  struct Size {
    std::int64_t rows, cols;
  };
  for (const Size& size :
       {Size{1, 64}, Size{1, 4}, Size{3, 8}, Size{5, 12}, Size{7, 5}, Size{300, 520}}) {
    for (const bool copies : {false, true}) {
      const auto [rows, cols] = size;
      expect_host_bytes(std::to_string(rows) + " x " + std::to_string(cols), [&](Operands& o) {
        return AdamW{.g = o.values<float>(rows, cols, -1, 1),
                     .norm = o.values<float>(1, 2, 0.5f, 2),
                     .state = o.step(),
                     .w = o.values<float>(rows, cols, -1, 1),
                     .m = o.values<float>(rows, cols, -1, 1),
                     .v = o.values<float>(rows, cols, 0, 1),
                     .copy = copies ? o.out<bf16>(rows, cols) : Tensor<bf16>{},
                     .weight_decay = 0.1f};
      });
    }
  }
}

// Vocabularies of a token, of less than a block's and of many blocks; rows of one token, and of a
// block's tokens, that are more than a block holds at once; widths of several blocks and of none's
// multiple; written and accumulated.
template <class T>
void expect_embedding_gradient(std::int64_t rows, std::int64_t vocabulary, std::int64_t d,
                               bool drops, bool adds) {
  const std::string name = std::to_string(vocabulary) + " tokens, " + std::to_string(d) + " wide";
  expect_host_bytes(name, rows, [&](Operands& o) {
    const Tensor<std::int32_t> document =
        o.rows_of([&](std::int64_t i) { return i % 11 == 3 ? -1 : i / 700; });
    return EmbeddingBackward<T>{
        .tokens = o.rows_of(
            [&](std::int64_t i) { return i % 11 == 3 ? 5 - i % 7 : 37 * i * i % vocabulary; }),
        .dy = o.values<T>(rows, d, -1, 1),
        .row_document = document,
        .row_position = o.rows_of([](std::int64_t i) { return i % 700; }),
        .row_number = document,
        .state = o.step(),
        .dweight = adds ? Tensor<float>{} : o.out<float>(vocabulary, d),
        .acc = adds ? o.values<float>(vocabulary, d, -1, 1) : Tensor<float>{},
        .dropout = {.active = drops, .site = 1, .threshold = 1u << 30, .scale = 1.25f}};
  });
}
template <class T>
void expect_embedding_gradients(std::int64_t rows, std::int64_t vocabulary, std::int64_t d,
                                bool drops) {
  for (const bool adds : {false, true})
    expect_embedding_gradient<T>(rows, vocabulary, d, drops, adds);
}
TEST(WideRowsOnAGpu, EmbeddingGradientsHaveTheBytesOfTheHost) {
  expect_embedding_gradients<bf16>(300, 40, 520, false);
  expect_embedding_gradients<bf16>(3000, 8192, 512, false);
  expect_embedding_gradients<bf16>(3000, 1000, 1032, true);
  expect_embedding_gradients<bf16>(20000, 1, 40, false);
  expect_embedding_gradients<bf16>(20000, 3, 12, true);
  expect_embedding_gradients<bf16>(40000, 5, 1536, false);
  expect_embedding_gradients<bf16>(9000, 50257, 20, false);
  expect_embedding_gradients<float>(3000, 50257, 100, true);
  expect_embedding_gradients<float>(20000, 3, 514, false);
}

}  // namespace
}  // namespace lockstep
