#include "tests/kernels/any_op/any_op.h"

#include <boost/pfr.hpp>
#include <cstring>

#include "kernels/ops/accumulate.h"
#include "kernels/submission/ops.h"
#include "tests/kernels/any_op/any_attention_op.h"
#include "tests/kernels/any_op/any_expert_op.h"
#include "tests/kernels/any_op/any_fp8_op.h"
#include "tests/kernels/any_op/op_builder.h"

namespace lockstep {

void* HostOpMemory::place(const std::vector<std::byte>& bytes) {
  auto block = std::make_unique<std::vector<std::byte>>(bytes.size() + 2 * kGuard, std::byte{0xa5});
  std::memcpy(block->data() + kGuard, bytes.data(), bytes.size());
  blocks_.push_back(std::move(block));
  return blocks_.back()->data() + kGuard;
}

namespace {

using F = float;
using I = std::int32_t;

// ---- Packing ------------------------------------------------------------------------------------
void draw(OpBuilder& b, PackMetadata& op) { op = draw_pack_metadata(b); }

// ---- Rows and channels --------------------------------------------------------------------------
Dropout draw_dropout(OpBuilder& b) {
  if (b.chance(3)) return {};
  const double p = 0.1 * static_cast<double>(b.between(1, 8));
  return {.active = true,
          .site = static_cast<std::uint32_t>(b.between(0, 4095)),
          .threshold = static_cast<std::uint32_t>(p * 4294967296.0),
          .scale = div(1.0f, sub(1.0f, static_cast<float>(p)))};
}

template <class T>
void draw(OpBuilder& b, EmbeddingForward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>(), vocabulary = b.between(1, 40);
  op = {.tokens = b.row_integers(pack, vocabulary),
        .weight = b.values<T>(vocabulary, d),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .row_number = pack.row_number,
        .state = b.state(),
        .y = b.out<T>(pack.rows, d),
        .dropout = draw_dropout(b)};
}
template <class T>
void draw(OpBuilder& b, EmbeddingBackward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>(), vocabulary = b.between(1, 40);
  op = {.tokens = b.row_integers(pack, vocabulary),
        .dy = b.row_values<T>(pack, d),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .row_number = pack.row_number,
        .state = b.state(),
        .dropout = draw_dropout(b)};
  if (b.chance(2)) {
    op.acc = b.values(vocabulary, d);
  } else {
    op.dweight = b.out<F>(vocabulary, d);
  }
}
template <class T>
void draw(OpBuilder& b, ResidualForward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>();
  op = {.residual = b.row_values<T>(pack, d),
        .y = b.row_values<T>(pack, d),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .row_number = pack.row_number,
        .state = b.state(),
        .out = b.out<T>(pack.rows, d),
        .dropout = draw_dropout(b)};
}
template <class T>
void draw(OpBuilder& b, ResidualBackward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>();
  op = {.dout = b.row_values<T>(pack, d),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .row_number = pack.row_number,
        .state = b.state(),
        .dy = b.out<T>(pack.rows, d),
        .dropout = draw_dropout(b),
        .amax = amax_of_a_producer<T>(b)};
}
// The sum over microbatches, which half of the ops add to.
Accum<F> draw_total(OpBuilder& b, std::int64_t rows, std::int64_t cols) {
  if (b.chance(2)) return {};
  return b.values(rows, cols);
}
template <class T>
void draw(OpBuilder& b, RmsNormForward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>();
  op = {.x = b.row_values<T>(pack, d),
        .gain = b.values(1, d),
        .row_document = pack.row_document,
        .y = b.out<T>(pack.rows, d),
        .rstd = b.out<F>(1, pack.rows),
        .amax = amax_of_a_producer<T>(b)};
}
template <class T>
void draw(OpBuilder& b, RmsNormBackward<T>& op) {
  const DrawnPack pack(b);
  const auto d = b.width<T>();
  const bool residual = b.chance(2);
  op = {.x = b.row_values<T>(pack, d),
        .rstd = b.row_numbers(pack, 0.5f, 2.0f),
        .gain = b.values(1, d),
        .dy = b.row_values<T>(pack, d),
        .dresidual = residual ? b.row_values<T>(pack, d) : In<T>{},
        .row_document = pack.row_document,
        .dx = b.out<T>(pack.rows, d),
        .dgain = b.out<F>(1, d),
        .partials = b.out<F>((pack.rows + 31) / 32, d),
        .amax = amax_of_a_producer<T>(b),
        .total = draw_total(b, 1, d)};
}
template <class T>
void draw(OpBuilder& b, GatedNormForward<T>& op) {
  const DrawnPack pack(b);
  const auto groups = b.between(1, 4), d = groups * b.width<T>();
  op = {.y = b.row_values<T>(pack, d),
        .z = b.row_values<T>(pack, d, [&] { return b.far_value(); }),
        .gain = b.values(1, d),
        .row_document = pack.row_document,
        .o = b.out<T>(pack.rows, d),
        .rstd = b.out<F>(pack.rows, groups),
        .groups = static_cast<I>(groups),
        .amax = amax_of_a_producer<T>(b)};
}
template <class T>
void draw(OpBuilder& b, GatedNormBackward<T>& op) {
  const DrawnPack pack(b);
  const auto groups = b.between(1, 4), d = groups * b.width<T>();
  op = {.y = b.row_values<T>(pack, d),
        .z = b.row_values<T>(pack, d, [&] { return b.far_value(); }),
        .gain = b.values(1, d),
        .rstd = b.row_values(pack, groups, [&] { return b.real(0.5f, 2.0f); }),
        .dout = b.row_values<T>(pack, d),
        .row_document = pack.row_document,
        .dy = b.out<T>(pack.rows, d),
        .dz = b.out<T>(pack.rows, d),
        .dgain = b.out<F>(1, d),
        .groups = static_cast<I>(groups),
        .partials = b.out<F>((pack.rows + 31) / 32, d),
        .amax = amax_of_a_producer<T>(b),
        .total = draw_total(b, 1, d)};
}
template <class T>
void draw(OpBuilder& b, ActivationForward<T>& op) {
  const DrawnRows rows(b);
  const Activation kind = b.chance(2) ? Activation::swiglu : Activation::squared_relu;
  const auto width = b.width<T>();
  op = {.h = rows.values<T>(b, kind == Activation::swiglu ? 2 * width : width,
                            [&] { return b.far_value(); }),
        .row_document = rows.row_document,
        .a = b.out<T>(rows.rows, width),
        .kind = kind,
        .amax = amax_of_a_producer<T>(b, rows.segments)};
  if (op.amax) op.start = rows.start, op.rows = rows.sizes;
}
template <class T>
void draw(OpBuilder& b, ActivationBackward<T>& op) {
  const DrawnRows rows(b);
  const Activation kind = b.chance(2) ? Activation::swiglu : Activation::squared_relu;
  const auto width = b.width<T>(), columns = kind == Activation::swiglu ? 2 * width : width;
  op = {.h = rows.values<T>(b, columns, [&] { return b.far_value(); }),
        .da = rows.values<T>(b, width),
        .row_document = rows.row_document,
        .dh = b.out<T>(rows.rows, columns),
        .kind = kind,
        .amax = amax_of_a_producer<T>(b, rows.segments)};
  if (op.amax) op.start = rows.start, op.rows = rows.sizes;
}

// ---- Linear: no row is special
// -------------------------------------------------------------------------------------- In bf16,
// of a library's product; now and then there is none.
template <class T>
Scratch<std::uint8_t> draw_workspace(OpBuilder& b) {
  if (std::is_same_v<T, F> || b.chance(4)) return {};
  return b.out<std::uint8_t>(1, kProductWorkspace);
}
template <class T>
void draw(OpBuilder& b, LinearForward<T>& op) {
  const auto rows = b.between(1, 70), in = b.width<T>(), out = b.width<T>();
  op = {.x = b.values<T>(rows, in),
        .w = b.values<T>(out, in),
        .y = b.out<T>(rows, out),
        .workspace = draw_workspace<T>(b)};
}
template <class T>
void draw(OpBuilder& b, LinearInputGradient<T>& op) {
  const auto rows = b.between(1, 70), in = b.width<T>(), out = b.width<T>();
  op = {.dy = b.values<T>(rows, out),
        .w = b.values<T>(out, in),
        .dx = b.out<T>(rows, in),
        .workspace = draw_workspace<T>(b)};
}
template <class T>
void draw(OpBuilder& b, LinearWeightGradient<T>& op) {
  const auto rows = b.between(1, 70), in = b.width<T>(), out = b.width<T>();
  op = {
      .dy = b.values<T>(rows, out), .x = b.values<T>(rows, in), .workspace = draw_workspace<T>(b)};
  if (b.chance(2)) {
    op.acc = b.values(out, in);
  } else {
    op.dw = b.out<F>(out, in);
  }
}

// ---- Attention ----------------------------------------------------------------------------------
void draw(OpBuilder& b, RopeTable& op) {
  op = {.table = b.out<F>(b.between(1, 90), 2 * b.between(1, 40)),
        .base = b.chance(2) ? 10000.0f : 500.0f};
}
template <class T>
void draw(OpBuilder& b, Rope<T>& op) {
  const DrawnPack pack(b);
  const Heads shape = Heads::drawn<T>(b);
  op = {.qkv = b.row_values<T>(pack, shape.fused()),
        .table = b.values(pack.rows, shape.head_dim),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim,
        .backward = b.chance(2),
        .amax = amax_of_a_producer<T>(b)};
}
template <class T>
void draw(OpBuilder& b, AttentionForward<T>& op) {
  const DrawnPack pack(b);
  const Heads shape = Heads::drawn<T>(b);
  op = {.qkv = b.row_values<T>(pack, shape.fused()),
        .cu_seqlens = pack.cu_seqlens,
        .cu_seqlens_padded = pack.cu_seqlens_padded,
        .row_document = pack.row_document,
        .o = b.out<T>(pack.rows, shape.heads * shape.head_dim),
        .lse = b.out<F>(pack.rows, shape.heads),
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim,
        .amax = amax_of_a_producer<T>(b)};
}
template <class T>
void draw(OpBuilder& b, AttentionBackward<T>& op) {
  const DrawnPack pack(b);
  const Heads shape = Heads::drawn<T>(b);
  const DrawnAttention<T> drawn(b, pack, shape);
  op = {.qkv = b.place(pack.rows, shape.fused(), drawn.qkv),
        .o = b.place(pack.rows, shape.width(), drawn.o),
        .lse = b.place(pack.rows, shape.heads, drawn.lse),
        .dout = b.row_values<T>(pack, shape.width()),
        .cu_seqlens = pack.cu_seqlens,
        .cu_seqlens_padded = pack.cu_seqlens_padded,
        .row_document = pack.row_document,
        .delta = b.out<F>(pack.rows, shape.heads),
        .next_tile = b.out<I>(1, 2),
        .dqkv = b.out<T>(pack.rows, shape.fused()),
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim};
}

// ---- Mamba --------------------------------------------------------------------------------------
template <class T>
void draw(OpBuilder& b, ConvForward<T>& op) {
  const DrawnPack pack(b);
  const auto channels = b.width<T>(), width = b.between(1, 6);
  op = {.x = b.row_values<T>(pack, channels, [&] { return b.far_value(); }),
        .weight = b.values(channels, width),
        .bias = b.values(1, channels),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .y = b.out<T>(pack.rows, channels)};
}
template <class T>
void draw(OpBuilder& b, ConvBackward<T>& op) {
  const DrawnPack pack(b);
  const auto channels = b.width<T>(), width = b.between(1, 6);
  op = {.x = b.row_values<T>(pack, channels, [&] { return b.far_value(); }),
        .weight = b.values(channels, width),
        .bias = b.values(1, channels),
        .dy = b.row_values<T>(pack, channels),
        .row_document = pack.row_document,
        .row_position = pack.row_position,
        .dpre = b.out<F>(pack.rows, channels),
        .dx = b.out<T>(pack.rows, channels),
        .dweight = b.out<F>(channels, width),
        .dbias = b.out<F>(1, channels),
        .amax = amax_of_a_producer<T>(b),
        .weight_total = draw_total(b, channels, width),
        .bias_total = draw_total(b, 1, channels)};
}

// Operands that forward and backward of the scan share.
template <class T, class Op>
void draw_scan(OpBuilder& b, const DrawnPack& pack, std::int64_t d_inner, Op& op) {
  op.xbc = b.row_values<T>(pack, d_inner + 2 * op.groups * op.state);
  op.dt = b.row_values<T>(pack, op.heads,
                          [&] { return b.chance(12) ? b.real(-40, 40) : b.real(-3, 2); });
  op.dt_bias = b.values(1, op.heads, [&] { return b.real(-4, 0); });
  op.a_log = b.values(1, op.heads, [&] { return b.real(0, 2.7f); });
  op.d = b.values(1, op.heads);
  op.cu_seqlens = pack.cu_seqlens;
  op.cu_seqlens_padded = pack.cu_seqlens_padded;
  op.row_document = pack.row_document;
  op.chunk_document = pack.chunk_document;
  op.chunk_start = pack.chunk_start;
  op.chunk_rows = pack.chunk_rows;
  op.states = b.out<F>(pack.chunk_document.cols, d_inner * op.state);
  op.chunk = pack.chunk;
}
template <class T, class Op>
std::int64_t draw_scan_shape(OpBuilder& b, Op& op) {
  op.groups = static_cast<I>(b.between(1, 2));
  op.heads = op.groups * static_cast<I>(b.between(1, 3));
  const auto any_state = b.one_of({1, 3, 8, 16, 24, 40}),
             legal_state = b.one_of({16, 32, 48, 128, 128});
  const auto any_width = b.one_of({1, 3, 8, 16, 20, 64}), legal_width = b.one_of({16, 32, 64, 64});
  constexpr bool legal = std::is_same_v<T, bf16>;
  op.state = static_cast<I>(legal ? legal_state : any_state);
  return op.heads * (legal ? legal_width : any_width);
}
template <class T>
void draw(OpBuilder& b, ScanForward<T>& op) {
  const DrawnPack pack(b);
  const std::int64_t d_inner = draw_scan_shape<T>(b, op);
  draw_scan<T>(b, pack, d_inner, op);
  op.y = b.out<T>(pack.rows, d_inner);
}
template <class T>
void draw(OpBuilder& b, ScanBackward<T>& op) {
  const DrawnPack pack(b);
  const std::int64_t d_inner = draw_scan_shape<T>(b, op);
  draw_scan<T>(b, pack, d_inner, op);
  op.dy = b.row_values<T>(pack, d_inner);
  op.dstates = b.out<F>(pack.chunk_document.cols, d_inner * op.state);
  op.rows = b.out<F>(pack.rows, 3 * op.heads);
  op.dxbc = b.out<T>(pack.rows, op.xbc.cols);
  op.ddt = b.out<T>(pack.rows, op.heads);
  op.ddt_bias = b.out<F>(1, op.heads);
  op.da_log = b.out<F>(1, op.heads);
  op.dd = b.out<F>(1, op.heads);
  op.amax = amax_of_a_producer<T>(b);
  for (Accum<F>* total : {&op.dt_bias_total, &op.a_log_total, &op.d_total})
    *total = draw_total(b, 1, op.heads);
}

// ---- Loss ---------------------------------------------------------------------------------------
template <class T>
void draw(OpBuilder& b, CrossEntropyForward<T>& op) {
  const DrawnTargets drawn(b);
  const std::vector<T> logits = stored<T>(drawn.logits);
  op = {.logits = b.place(drawn.rows, drawn.vocabulary, logits),
        .targets = b.place(1, drawn.rows, drawn.targets),
        .loss = b.out<F>(1, drawn.rows),
        .maximum = b.out<F>(1, drawn.rows),
        .sum = b.out<F>(1, drawn.rows)};
}
template <class T>
void draw(OpBuilder& b, CrossEntropyBackward<T>& op) {
  DrawnTargets drawn(b);
  std::vector<F> loss(static_cast<std::size_t>(drawn.rows)), maximum(loss), sum(loss);
  std::vector<T> logits = stored<T>(drawn.logits);
  run(HostQueue{},
      CrossEntropyForward<T>{.logits = tensor(logits.data(), drawn.rows, drawn.vocabulary),
                             .targets = tensor(drawn.targets.data(), 1, drawn.rows),
                             .loss = tensor(loss.data(), 1, drawn.rows),
                             .maximum = tensor(maximum.data(), 1, drawn.rows),
                             .sum = tensor(sum.data(), 1, drawn.rows)});
  op = {.logits = b.place(drawn.rows, drawn.vocabulary, logits),
        .targets = b.place(1, drawn.rows, drawn.targets),
        .maximum = b.place(1, drawn.rows, maximum),
        .sum = b.place(1, drawn.rows, sum),
        .state = b.state(),
        .dlogits = b.out<T>(drawn.rows, drawn.vocabulary)};
}
void draw(OpBuilder& b, MicrobatchLoss& op) {
  op = {.loss = b.values(1, b.between(1, 150)), .state = b.state(), .total = b.out<F>(1, 1)};
}

// ---- Optimizer ----------------------------------------------------------------------------------
void draw(OpBuilder& b, AccumulateGradient& op) {
  const auto rows = b.between(1, 20), cols = b.width();
  const auto terms = b.chance(2) ? 1 : b.between(2, 4);
  op = {.g = b.values(terms * rows, cols), .acc = b.values(rows, cols)};
}
void draw(OpBuilder& b, ZeroGradient& op) { op = {.acc = b.out<F>(b.between(1, 20), b.width())}; }
void draw(OpBuilder& b, GradientRowSums& op) {
  const auto rows = b.between(1, 40), cols = b.chance(3) ? 1 : b.width();
  op = {.g = b.values(rows, cols), .sums = b.out<F>(1, rows)};
}
void draw(OpBuilder& b, OrderRowSums& op) {
  const auto sent = b.between(1, 300), rows = b.between(1, sent);
  std::vector<std::int32_t> order(static_cast<std::size_t>(rows));
  for (std::int32_t& from : order) from = static_cast<std::int32_t>(b.between(0, sent - 1));
  op = {.from = b.values(1, sent), .order = b.place(1, rows, order), .to = b.out<F>(1, rows)};
}
void draw(OpBuilder& b, GradientNorm& op) {
  const auto rows = b.one_of({1, 7, 128, 1024, 1500, 3000});
  op = {.sums = b.values(1, rows, [&] { return b.real(0, 1); }),
        .norm = b.out<F>(1, 2),
        .max_norm = static_cast<float>(b.one_of({0, 1, 1000}))};
}
void draw(OpBuilder& b, AdamW& op) {
  const auto rows = b.between(1, 20), cols = b.width();
  const bool copies = b.chance(2);
  op = {.g = b.values(rows, cols),
        .norm = b.values(1, 2, [&] { return b.real(0.1f, 1); }),
        .state = b.state(),
        .w = b.values(rows, cols),
        .m = b.values(rows, cols),
        .v = b.values(rows, cols, [&] { return b.real(0, 2); }),
        .copy = copies ? b.out<bf16>(rows, cols) : Out<bf16>{},
        .weight_decay = b.chance(2) ? 0.1f : 0.0f};
}
void draw(OpBuilder& b, RoundWeights& op) {
  const auto rows = b.between(1, 20), cols = b.width();
  op = {.w = b.values(rows, cols), .copy = b.out<bf16>(rows, cols)};
}
// The index of an element of a large parameter, near where a narrow integer or an fp32 ends.
std::int64_t far_element(OpBuilder& b) {
  const std::int64_t begin = b.chance(2) ? 0 : std::int64_t{1} << b.one_of({24, 31, 34});
  return begin + b.between(0, 9);
}
void draw(OpBuilder& b, Initialize& op) {
  op = {.w = b.out<F>(b.between(1, 12), b.width()),
        .first = far_element(b),
        .kind = static_cast<Init>(b.between(0, 5)),
        .std = 0.02f,
        .width = 4,
        .parameter = static_cast<std::uint32_t>(b.between(0, 40)),
        .seed_low = static_cast<std::uint32_t>(b.between(0, 1 << 20)),
        .seed_high = static_cast<std::uint32_t>(b.between(0, 9))};
}
void draw(OpBuilder& b, Digest& op) {
  op = {.values = b.values(b.between(1, 12), b.width()),
        .sums = b.place(1, 2, std::vector<std::uint64_t>{17, ~std::uint64_t{0}}),
        .first = static_cast<std::uint64_t>(far_element(b)),
        .tensor = (static_cast<std::uint64_t>(b.between(0, 4)) << 32) +
                  static_cast<std::uint64_t>(b.between(0, 40))};
}

// ---- The machine --------------------------------------------------------------------------------
void draw(OpBuilder& b, Fingerprint& op) {
  op = {.hashes = b.out<std::uint64_t>(1, kFingerprints)};
}
void draw(OpBuilder& b, TensorCoreDots& op) {
  const std::int64_t tiles = b.between(1, 20);
  op = {.a = b.values<bf16>(tiles * kDotRows, kDotDepth),
        .b = b.values<bf16>(tiles * kDotColumns, kDotDepth),
        .c = b.values(tiles * kDotRows, kDotColumns),
        .d = b.out<F>(tiles * kDotRows, kDotColumns)};
}
void draw(OpBuilder& b, PoisonMemory& op) {
  op = {.memory = b.out<std::uint16_t>(b.between(1, 6), b.width()), .half = PoisonMemory::kFreed};
}

bool is_number(float x) { return abs(x) < infinity(); }
bool is_number(bf16 x) { return is_number(load(x)); }
template <class T>
bool is_number(T) {
  return true;
}

// All outputs hold numbers.
template <class Op>
bool gives_numbers(const void* op) {
  bool all = true;
  boost::pfr::for_each_field(*static_cast<const Op*>(op), [&]<class Field>(const Field& field) {
    if constexpr (requires {
                    Field::access;
                    field.pitch;
                  }) {
      const bool written = Field::access == Access::out || Field::access == Access::accum;
      for (std::int64_t i = 0; written && field && i < field.rows; ++i) {
        for (std::int64_t c = 0; c < field.cols; ++c) all = all && is_number(field.row(i)[c]);
      }
    }
  });
  return all;
}

struct DrawnOp {
  Submission submission;
  bool (*gives_numbers)(const void* op);
};
template <class Op>
DrawnOp draw_one(OpBuilder& b) {
  Op op;
  draw(b, op);
  check(op);
  return {Submission(op), gives_numbers<Op>};
}
template <class... Ops>
DrawnOp draw_by_id(OpList<Ops...>, int id, OpBuilder& b) {
  DrawnOp (*const makers[])(OpBuilder&) = {draw_one<Ops>...};
  return makers[id](b);
}
template <class Op>
constexpr const char* type_name = "";
template <template <class> class Op>
constexpr const char* type_name<Op<bf16>> = "_bf16";
template <template <class> class Op>
constexpr const char* type_name<Op<e4m3>> = "_e4m3";
template <template <class> class Op>
constexpr const char* type_name<Op<e5m2>> = "_e5m2";
template <>
constexpr const char* type_name<Fp8Dots<e4m3, e4m3>> = "_e4m3_e4m3";
template <>
constexpr const char* type_name<Fp8Dots<e4m3, e5m2>> = "_e4m3_e5m2";
template <>
constexpr const char* type_name<Fp8Dots<e5m2, e4m3>> = "_e5m2_e4m3";
template <>
constexpr const char* type_name<Fp8Dots<e5m2, e5m2>> = "_e5m2_e5m2";

}  // namespace

OpCase any_op(int id, std::uint64_t seed, OpMemory& memory, Fill fill) {
  require(id >= 0 && id < AllOps::size, "the id of an op");
  OpBuilder builder(seed, memory, fill);
  const DrawnOp drawn = draw_by_id(AllOps{}, id, builder);
  return {op_name(id) + " seed " + std::to_string(seed), drawn.submission, drawn.gives_numbers};
}

namespace {
template <class... Ops>
std::string kernel_name(OpList<Ops...>, int id) {
  const std::string list[] = {std::string(Ops::kName) + type_name<Ops>...};
  return list[id];
}
}  // namespace
std::string op_name(int id) { return kernel_name(AllOps{}, id); }

}  // namespace lockstep
