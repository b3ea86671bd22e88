#include "harness/bench/kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "harness/base/errors.h"
#include "harness/bench/captured_work.h"
#include "harness/bench/median.h"
#include "harness/bench/model.h"
#include "harness/bench/recorded_step.h"
#include "kernels/core/contract.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/optimizer.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

constexpr int kLaunches = 7;              // The median of these.
constexpr double kLaunchSeconds = 10e-3;  // A launch holds as many calls as fill this.
constexpr int kMostCalls = 64;

// Reads more than the second-level cache holds, so that the op after it finds none of its operands
// there.
class Flush {
 public:
  explicit Flush(Device& device)
      : memory_(device, 2 * bytes()),
        sums_(device, kRows * sizeof(float)),
        op_(GradientRowSums{.g = tensor(static_cast<float*>(memory_.data()), kRows, kCols),
                            .sums = tensor(static_cast<float*>(sums_.data()), 1, kRows)}) {}
  const Submission& op() const { return op_; }
  // Returns as many bytes again. A copy over the bytes that are read would leave some of them in
  // the cache for the next reading.
  void* copied() const { return static_cast<char*>(memory_.data()) + bytes(); }
  static constexpr std::size_t bytes() { return kRows * kCols * sizeof(float); }

 private:
  static constexpr std::int64_t kRows = 65536, kCols = 1024;
  DeviceBuffer memory_, sums_;
  Submission op_;
};

// The median of launches of the work as one graph.
double seconds_of(const BenchStream& stream, const std::function<void(BackendStream*)>& work) {
  const CapturedWork captured(stream, work);
  std::vector<double> times;
  captured.seconds();  // Warms up.
  for (int i = 0; i < kLaunches; ++i) times.push_back(captured.seconds());
  return median(times);
}

// One call of `work`, each after `flush` if there is one: launches with the work less launches
// without it.
double time_work(const BenchStream& own, const std::function<void(BackendStream*)>& work,
                 const Submission* flush) {
  const auto many = [&](int calls, bool with_work) {
    return seconds_of(own, [&](BackendStream* stream) {
      for (int i = 0; i < calls; ++i) {
        if (flush != nullptr) own.backend().submit(stream, *flush);
        if (!with_work) continue;
        work(stream);
        own.end_work();
      }
    });
  };
  const int calls =
      static_cast<int>(std::clamp(kLaunchSeconds / many(1, true), 1.0, double{kMostCalls}));
  const double rest = flush != nullptr ? many(calls, false) : 0;
  return std::max(many(calls, true) - rest, 0.0) / calls;
}

PackWork pack_work(const Microbatch& microbatch) {
  std::set<std::int32_t> tokens;
  for (const Document& document : microbatch.documents)
    tokens.insert(document.tokens.begin(), document.tokens.end());
  return {.causal_pairs = causal_pairs(lengths_of(microbatch)), .tokens = std::ssize(tokens)};
}

double copy_rate(const BenchStream& own, void* memory, std::size_t bytes) {
  constexpr int kCopies = 16;
  char* half = static_cast<char*>(memory) + bytes / 2;
  const double seconds = seconds_of(own, [&](BackendStream* stream) {
    for (int i = 0; i < kCopies; ++i)
      own.backend().copy(stream, half, memory, bytes / 2, CopyKind::device_to_device);
  });
  return kCopies * static_cast<double>(bytes) / seconds;
}

// A product that has no workspace is done by our own kernel (kernels/ops/linear.h).
template <class Op>
std::optional<Submission> without_workspace(const Submission& op) {
  if (!op.as<Op>()) return {};
  Op own = *static_cast<const Op*>(op.op());
  own.workspace = {};
  return Submission(own);
}
template <class... Ops>
std::optional<Submission> first_without_workspace(const Submission& op) {
  std::optional<Submission> own;
  (void)((own = without_workspace<Ops>(op)) || ...);
  return own;
}
std::optional<Submission> by_own_kernel(const Submission& op) {
  return first_without_workspace<LinearForward<bf16>, LinearInputGradient<bf16>,
                                 LinearWeightGradient<bf16>, Fp8LinearForward,
                                 Fp8LinearInputGradient, Fp8LinearWeightGradient>(op);
}

// An eager step whose ops are timed.
class TimedStep : public RecordedStep {
 public:
  TimedStep(const Scenario& scenario, const std::string& device_kind)
      : RecordedStep(scenario, device_kind), stream_(backend()) {
    if (device_kind == "cuda") flush_.emplace(device());
  }
  double copy_bytes_per_second() {
    return flush_ ? copy_rate(stream_, flush_->copied(), Flush::bytes()) : 0;
  }
  KernelTime time(const std::string& text, const RecordedOp& entry) {
    return {
        .op = text,
        .times = entry.times,
        .work = work_of(
            entry.op, entry.microbatch < 0 ? PackWork{} : pack_work(microbatch(entry.microbatch))),
        .seconds = time([&](BackendStream* stream) { backend().submit(stream, entry.op); })};
  }
  // Whether a library does the op; which of its algorithms is the fastest is found out here, by
  // trials.
  bool has_library(const Submission& op) {
    BackendStream* const stream = backend().create_stream("fastest library");
    const bool has = backend().submit_fastest(stream, op);
    backend().synchronize(stream);
    backend().destroy_stream(stream);
    return has;
  }
  // Seconds of the library on the op's operands, by its clock.
  double library_seconds(const Submission& op) {
    return time([&](BackendStream* stream) { backend().submit_fastest(stream, op); });
  }
  // Seconds of our own kernel on the operands of a product; 0 if the op is none.
  double own_seconds(const Submission& op) {
    const std::optional<Submission> own = by_own_kernel(op);
    return own ? time([&](BackendStream* stream) { backend().submit(stream, *own); }) : 0;
  }
  // A copy that reads and writes as many bytes as an op does, but for some of a page, by the op's
  // own clock. 0 where the rate of a large copy says as much.
  double copy_seconds(double bytes) {
    constexpr std::size_t kPage = 4096;  // Copies between odd addresses are slower.
    const std::size_t half = (static_cast<std::size_t>(bytes / 2) + kPage - 1) / kPage * kPage;
    if (!flush_ || half == 0 || 2 * half > Flush::bytes()) return 0;
    char* const from = static_cast<char*>(flush_->copied());
    return time([&](BackendStream* stream) {
      backend().copy(stream, from + half, from, half, CopyKind::device_to_device);
    });
  }

 private:
  double time(const std::function<void(BackendStream*)>& work) {
    return time_work(stream_, work, flush_ ? &flush_->op() : nullptr);
  }
  BenchStream stream_;
  std::optional<Flush> flush_;
};

// The step's backward passes by cuDNN, were they allowed to differ from run to run.
RecordedOp free_to_differ(TimedStep& step, RecordedOp entry) {
  CudnnAttentionBackward op = *static_cast<const CudnnAttentionBackward*>(entry.op.op());
  op.deterministic = false;
  entry.op = Submission(op);
  if (step.backend().workspace_bytes(entry.op) > op.workspace.cols)
    throw WorldError("its workspace is too small");
  return entry;
}

// The time that cuDNN takes for the step's attention: forward, backward, backward with gradients
// that differ from run to run.
std::vector<KernelTime> time_cudnn(Scenario scenario, const std::string& device_kind) {
  scenario.model.core_attention = CoreAttention::cudnn;
  TimedStep step(scenario, device_kind);
  std::vector<KernelTime> list;
  for (const auto& [text, entry] : step.ops()) {
    if (entry.op.as<CudnnAttentionForward>()) list.push_back(step.time(text, entry));
    if (!entry.op.as<CudnnAttentionBackward>()) continue;
    list.push_back(step.time(text, entry));
    list.push_back(step.time(text + " not deterministic", free_to_differ(step, entry)));
  }
  return list;
}

bool has_cudnn_for_ceiling(const Scenario& scenario, const std::string& device_kind,
                           const std::string& only) {
  const auto is_asked = [&](std::string_view name) {
    return name.find(only) != std::string_view::npos;
  };
  const bool asked =
      is_asked(AttentionForward<bf16>::kName) || is_asked(AttentionBackward<bf16>::kName);
  return asked && device_kind == "cuda" && scenario.numerics.front() == Numerics::bf16 &&
         scenario.model.core_attention == CoreAttention::native &&
         scenario.model.pattern.find('*') != std::string::npos;
}

// The fastest that cuDNN had for this op.
double cudnn_ceiling(const std::vector<KernelTime>& cudnn, const Submission& op) {
  const bool forward = op.as<AttentionForward<bf16>>();
  if (!forward && !op.as<AttentionBackward<bf16>>()) return 0;
  const char* const name = forward ? CudnnAttentionForward::kName : CudnnAttentionBackward::kName;
  double fastest = 0;
  for (const KernelTime& one : cudnn) {
    if (one.op.starts_with(name) && (fastest == 0 || one.seconds < fastest)) fastest = one.seconds;
  }
  return fastest;
}

}  // namespace

KernelTimes time_kernels(const Scenario& given, const std::string& device_kind,
                         const std::string& only,
                         const std::function<void(const KernelTime&)>& done) {
  Scenario scenario = given;
  scenario.cuda_graph.impl = GraphImpl::none;
  scenario.cuda_graph.modules.clear();
  KernelTimes times;
  std::vector<KernelTime> cudnn;
  if (has_cudnn_for_ceiling(scenario, device_kind, only)) {
    try {
      cudnn = time_cudnn(scenario, device_kind);
    } catch (const DeviceError& error) {
      times.no_cudnn = error.what();
    }
  }
  for (const KernelTime& one : cudnn) done(one);
  TimedStep step(scenario, device_kind);
  times.copy_bytes_per_second = step.copy_bytes_per_second();
  for (const auto& [text, entry] : step.ops()) {
    if (text.find(only) == std::string::npos) continue;
    // Trials make a GPU warm: not between the two.
    const bool by_library = step.has_library(entry.op);
    times.list.push_back(step.time(text, entry));
    KernelTime& made = times.list.back();
    made.ceiling = by_library ? step.library_seconds(entry.op) : cudnn_ceiling(cudnn, entry.op);
    if (by_library) made.own = step.own_seconds(entry.op);
    if (made.work.bound == Bound::bandwidth) made.copy = step.copy_seconds(made.work.bytes);
    const bool by_copy =
        made.ceiling == 0 && made.work.bound == Bound::bandwidth && times.copy_bytes_per_second > 0;
    if (by_copy) made.ceiling = made.work.bytes / times.copy_bytes_per_second;
    done(made);
  }
  std::stable_sort(times.list.begin(), times.list.end(),
                   [](const KernelTime& a, const KernelTime& b) {
                     return a.times * a.seconds > b.times * b.seconds;
                   });
  times.cudnn = std::move(cudnn);
  return times;
}

}  // namespace lockstep
