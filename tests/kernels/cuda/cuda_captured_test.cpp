// The GPU does not launch each op by itself: a graph runs some beside others and some pairs in one
// kernel, and eager runs launch short ones together. They leave the bytes of the ops one after the
// other.
#include <memory>
#include <utility>

#include "kernels/ops/accumulate.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/cuda/drawn_rows.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

using Program = std::vector<Submission>;

void launch_captured(Backend& backend, BackendStream* stream, const Program& ops, int times) {
  backend.begin_capture(stream);
  for (const Submission& op : ops) backend.submit(stream, op);
  BackendGraph* const graph = backend.end_capture(stream);
  for (int i = 0; i < times; ++i) backend.launch(graph, stream);
  backend.synchronize(stream);
  backend.destroy_graph(graph);
}

// ---- Pairs --------------------------------------------------------------------------------------

void run_eagerly(Backend& backend, BackendStream* stream, const Program& ops, int times) {
  for (int i = 0; i < times; ++i) {
    for (const Submission& op : ops) backend.submit(stream, op);
  }
  backend.synchronize(stream);
}

// make(operands): the ops, in any memory.
template <class Make>
void expect_bytes_of_the_host(const std::string& name, std::int64_t rows, Make make,
                              decltype(&run_eagerly) run = launch_captured) {
  const GpuStream stream;
  HostOpMemory on_host;
  GpuOpMemory on_gpu(stream);
  Operands host_operands(on_host, rows, 20261127), gpu_operands(on_gpu, rows, 20261127);
  const Program host = make(host_operands), device = make(gpu_operands);
  for (const Submission& op : host) op.run_on_host();
  run(gpu(), stream.get(), device, 1);
  for (std::size_t k = 0; k < on_host.size(); ++k) {
    const std::vector<std::byte> want = on_host.block(k), got = on_gpu.block(k);
    ASSERT_TRUE(want == got) << name << ", operand block " << k << ", byte "
                             << first_difference(want, got) - HostOpMemory::kGuard;
  }
}

Program cross_entropies(Operands& o, std::int64_t rows, std::int64_t vocabulary, float low) {
  CrossEntropyForward<bf16> forward{.logits = o.values<bf16>(rows, vocabulary, low, 20),
                                    .targets = o.rows_of([&](std::int64_t i) {
                                      return i % 7 == 0 ? -1 : (31 * i + 5) % vocabulary;
                                    }),
                                    .loss = o.out<float>(1, rows),
                                    .maximum = o.out<float>(1, rows),
                                    .sum = o.out<float>(1, rows)};
  const Tensor<StepState> state = o.step();
  CrossEntropyBackward<bf16> backward{.logits = forward.logits,
                                      .targets = forward.targets,
                                      .maximum = forward.maximum,
                                      .sum = forward.sum,
                                      .state = state,
                                      .dlogits = o.out<bf16>(rows, vocabulary)};
  const MicrobatchLoss loss{.loss = forward.loss, .state = state, .total = o.out<float>(1, 1)};
  return {Submission(forward), Submission(loss), Submission(backward)};
}

// Logits within 87 of the maximum, and far beyond.
TEST(CapturedOps, CrossEntropyWithItsGradientHasTheBytesOfTheHost) {
  constexpr std::int64_t kLogits = 500;
  for (const std::int64_t vocabulary : {5000, 8192, 9000, 32768}) {
    for (const float low : {-20.0f, -200.0f}) {
      expect_bytes_of_the_host(
          std::to_string(vocabulary) + " from " + std::to_string(low), kLogits,
          [&](Operands& o) { return cross_entropies(o, kLogits, vocabulary, low); });
    }
  }
}

Program residual_and_norm(Operands& o, std::int64_t rows, std::int64_t d, bool drops) {
  const Tensor<std::int32_t> documents = o.documents();
  const ResidualForward<bf16> residual{
      .residual = o.values<bf16>(rows, d, -2, 2),
      .y = o.values<bf16>(rows, d, -2, 2),
      .row_document = documents,
      .row_position = o.positions(),
      .row_number = documents,
      .state = o.step(),
      .out = o.out<bf16>(rows, d),
      .dropout = {.active = drops, .site = 1, .threshold = 1u << 30, .scale = 1.25f}};
  const RmsNormForward<bf16> norm{.x = residual.out,
                                  .gain = o.values<float>(1, d, -2, 2),
                                  .row_document = documents,
                                  .y = o.out<bf16>(rows, d),
                                  .rstd = o.out<float>(1, rows)};
  return {Submission(residual), Submission(norm)};
}

// With dropout the two are no pair.
TEST(CapturedOps, AResidualWithTheNextNormHasTheBytesOfTheHost) {
  constexpr std::int64_t kRows = 300;
  for (const std::int64_t d : {500, 512, 520, 2040, 2048, 2056, 4096}) {
    for (const bool drops : {false, true}) {
      expect_bytes_of_the_host(std::to_string(d) + " wide", kRows,
                               [&](Operands& o) { return residual_and_norm(o, kRows, d, drops); });
    }
  }
}

// Half of a pair, and a second op of other operands.
TEST(CapturedOps, OpsOfNoPairAreRunAsTheyAre) {
  constexpr std::int64_t kRows = 300, kWide = 512;
  expect_bytes_of_the_host("a residual alone", kRows, [&](Operands& o) {
    Program ops = residual_and_norm(o, kRows, kWide, false);
    ops.pop_back();
    return ops;
  });
  expect_bytes_of_the_host("another loss between", kRows, [&](Operands& o) {
    Program ops = cross_entropies(o, kRows, 8192, -20);
    const Program other = cross_entropies(o, kRows, 8192, -20);
    ops.insert(ops.begin() + 1, other.begin(), other.end());
    return ops;
  });
  // The norm's result lies over what the residual adds.
  expect_bytes_of_the_host("a norm over its residual", kRows, [&](Operands& o) {
    Program ops = residual_and_norm(o, kRows, kWide, false);
    RmsNormForward<bf16> norm = *ops[1].as<RmsNormForward<bf16>>();
    const In<bf16> y = ops[0].as<ResidualForward<bf16>>()->y;
    norm.y = Tensor<bf16>{const_cast<bf16*>(y.data), y.rows, y.cols, y.pitch};
    ops[1] = Submission(norm);
    return ops;
  });
}

// ---- Ops beside others --------------------------------------------------------------------------

constexpr std::int64_t kRows = 1024, kWide = 512;

// Tensors of equal shapes, few enough that most ops meet what earlier ones use.
struct Tensors {
  static constexpr int kEach = 4;
  Tensor<bf16> rows[kEach], weights[2];
  Tensor<float> gradients[kEach], gains[kEach], partials, rstd, loss, total;
  Tensor<std::int32_t> documents;
  Tensor<StepState> state;

  explicit Tensors(Operands& o)
      : partials(o.out<float>(kRows / 32, kWide)),
        rstd(o.values<float>(1, kRows, 0.5f, 2)),
        loss(o.values<float>(1, kRows, 0, 2)),
        total(o.values<float>(1, 1, 0, 1)),
        documents(o.rows_of([](std::int64_t i) { return i % 300 < 290 ? i / 300 : -1; })),
        state(o.step()) {
    for (auto& one : rows) one = o.values<bf16>(kRows, kWide, -1, 1);
    for (auto& one : weights) one = o.values<bf16>(kWide, kWide, -0.05f, 0.05f);
    for (auto& one : gradients) one = o.values<float>(kWide, kWide, -1, 1);
    for (auto& one : gains) one = o.values<float>(1, kWide, -1, 1);
  }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  int below(int n) {
    return static_cast<int>((mix64(state_ += 0x9E3779B97F4A7C15u) >> 33) %
                            static_cast<unsigned>(n));
  }

 private:
  std::uint64_t state_;
};

// Products of weights among ops that write what these read, read what they write, or neither.
Program random_program(Operands& o, Tensor<std::uint8_t> workspace, std::uint64_t seed) {
  const Tensors t(o);
  Draw draw(seed);
  Program ops;
  while (ops.size() < 40) {
    const int first = draw.below(4), second = (first + 1 + draw.below(3)) % 4;
    const Tensor<bf16> a = t.rows[first], b = t.rows[second], to = t.rows[(second + 1) % 4];
    const Tensor<float> gain = t.gains[draw.below(4)], g = t.gradients[draw.below(4)];
    switch (draw.below(8)) {
      case 0:
      case 1:
      case 2: {
        LinearWeightGradient<bf16> op{.dy = a, .x = b, .workspace = workspace};
        if (draw.below(3) == 0) {
          op.dw = g;
        } else {
          op.acc = g;
        }
        ops.emplace_back(op);
        break;
      }
      case 3:
        ops.emplace_back(LinearInputGradient<bf16>{
            .dy = a, .w = t.weights[draw.below(2)], .dx = b, .workspace = workspace});
        break;
      case 4: {
        if (to.data == a.data) break;
        ops.emplace_back(ResidualForward<bf16>{.residual = a,
                                               .y = b,
                                               .row_document = t.documents,
                                               .row_position = t.documents,
                                               .row_number = t.documents,
                                               .state = t.state,
                                               .out = to,
                                               .dropout = {}});
        ops.emplace_back(RmsNormForward<bf16>{
            .x = to, .gain = gain, .row_document = t.documents, .y = b, .rstd = t.rstd});
        break;
      }
      case 5: {
        if (to.data == a.data) break;
        ops.emplace_back(
            RmsNormBackward<bf16>{.x = a,
                                  .rstd = t.rstd,
                                  .gain = gain,
                                  .dy = b,
                                  .dresidual = {},
                                  .row_document = t.documents,
                                  .dx = to,
                                  .dgain = t.gains[0].data == gain.data ? t.gains[1] : t.gains[0],
                                  .partials = t.partials,
                                  .total = t.gains[2].data == gain.data ? t.gains[3] : t.gains[2]});
        break;
      }
      case 6:
        ops.emplace_back(ZeroGradient{.acc = g});
        break;
      default:
        ops.emplace_back(MicrobatchLoss{.loss = t.loss, .state = t.state, .total = t.total});
        ops.emplace_back(
            AccumulateGradient{.g = t.gradients[draw.below(4)], .acc = t.gradients[3]});
    }
  }
  return ops;
}

// The products' workspace: what a stream has, and a plan asks for.
class Workspace {
 public:
  Workspace() : data_(gpu().allocate(kProductWorkspace)) {}
  ~Workspace() { gpu().release(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  Tensor<std::uint8_t> get() const {
    return tensor(static_cast<std::uint8_t*>(data_), 1, kProductWorkspace);
  }

 private:
  void* data_;
};

// Returns whether three launches of the program's graph leave what three eager runs leave.
bool graph_is_eager(std::uint64_t seed) {
  constexpr int kTimes = 3;
  const GpuStream stream;
  const Workspace workspace;
  GpuOpMemory eager(stream), captured(stream);
  Operands of_eager(eager, kRows, seed), of_captured(captured, kRows, seed);
  const Program one_by_one = random_program(of_eager, workspace.get(), seed);
  for (const Submission& op : one_by_one) gpu().plan(op);
  run_eagerly(gpu(), stream.get(), one_by_one, kTimes);
  const Program ops = random_program(of_captured, workspace.get(), seed);
  BackendStream* const own = gpu().create_stream("compute");
  launch_captured(gpu(), own, ops, kTimes);
  gpu().destroy_stream(own);
  bool equal = true;
  for (std::size_t k = 0; k < eager.size(); ++k)
    equal = equal && eager.block(k) == captured.block(k);
  return equal;
}

TEST(CapturedOps, RandomProgramsHaveTheBytesOfEagerRuns) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    EXPECT_TRUE(graph_is_eager(seed)) << "seed " << seed;
}

// ---- Ops that are launched together -------------------------------------------------------------

// The ops of the optimizer on tensors that meet and that do not, rows of whole fours and others.
Program random_updates(Operands& o, std::uint64_t seed) {
  struct Weight {
    Tensor<float> g, w, m, v;
    Tensor<bf16> copy;
  };
  Draw draw(seed);
  std::vector<Weight> weights;
  for (int k = 0; k < 6; ++k) {
    const std::int64_t rows = 1 + draw.below(40), cols = 1 + draw.below(3) * (draw.below(2) + 3);
    weights.push_back({.g = o.values<float>(rows, cols, -1, 1),
                       .w = o.values<float>(rows, cols, -1, 1),
                       .m = o.values<float>(rows, cols, -1, 1),
                       .v = o.values<float>(rows, cols, 0, 1),
                       .copy = o.out<bf16>(rows, cols)});
  }
  const Tensor<float> sums = o.values<float>(1, 200, 0, 1), norm = o.values<float>(1, 2, 0.5f, 1);
  const Tensor<StepState> state = o.step();
  Program ops;
  while (ops.size() < 60) {
    const int kind = draw.below(4);
    for (int many = 1 + draw.below(40); many > 0; --many) {
      const Weight& own = weights[static_cast<std::size_t>(draw.below(6))];
      const std::int64_t rows = own.g.rows;
      if (kind == 0) ops.emplace_back(ZeroGradient{.acc = draw.below(2) == 0 ? own.g : own.m});
      if (kind == 1)
        ops.emplace_back(
            GradientRowSums{.g = own.g, .sums = sums.columns(4 * draw.below(40), rows)});
      if (kind == 2)
        ops.emplace_back(AdamW{.g = own.g,
                               .norm = norm,
                               .state = state,
                               .w = own.w,
                               .m = own.m,
                               .v = own.v,
                               .copy = own.copy,
                               .weight_decay = 0.1f});
    }
    if (kind == 3) ops.emplace_back(GradientNorm{.sums = sums, .norm = norm, .max_norm = 1});
  }
  return ops;
}

TEST(WaitingOps, UpdatesInAnyOrderHaveTheBytesOfTheHost) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (const auto run : {run_eagerly, launch_captured}) {
      expect_bytes_of_the_host(
          "seed " + std::to_string(seed), kRows,
          [&](Operands& o) { return random_updates(o, seed); }, run);
    }
  }
}

}  // namespace
}  // namespace lockstep
