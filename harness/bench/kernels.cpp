#include "harness/bench/kernels.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/trainer.h"
#include "harness/bench/model.h"
#include "harness/device_choice.h"
#include "harness/schedules.h"
#include "harness/stopwatch.h"

namespace lockstep {
namespace {

constexpr int kLaunches = 7;              // The median of these.
constexpr double kLaunchSeconds = 10e-3;  // A launch holds as many calls as fill this.
constexpr int kMostCalls = 64;

// Keeps the first op of each signature, and how often it came.
class OpRecorder : public Observer {
 public:
  struct Entry {
    Submission op;
    int microbatch;
    int times;
  };
  void on_submit(int, const Submission& op, const Place& place) override {
    if (!recording) return;
    const auto [entry, is_new] = ops.try_emplace(signature(op), Entry{op, place.microbatch, 0});
    ++entry->second.times;
  }
  bool recording = false;
  std::map<std::string, Entry> ops;
};

// Reads more than the second-level cache holds, so that the op after it finds none of its operands there.
class Flush {
 public:
  explicit Flush(Device& device)
      : memory_(device, kRows * kCols * sizeof(float)),
        sums_(device, kRows * sizeof(float)),
        op_(GradientRowSums{.g = tensor(static_cast<float*>(memory_.data()), kRows, kCols),
                            .sums = tensor(static_cast<float*>(sums_.data()), 1, kRows)}) {}
  const Submission& op() const { return op_; }
  void* memory() const { return memory_.data(); }
  static constexpr std::size_t bytes() { return kRows * kCols * sizeof(float); }

 private:
  static constexpr std::int64_t kRows = 65536, kCols = 1024;
  DeviceBuffer memory_, sums_;
  Submission op_;
};

// Work on a stream of its own, as one graph, so that the host's part is one launch.
class GraphTimer {
 public:
  explicit GraphTimer(Backend& backend) : backend_(backend), stream_(backend.create_stream("bench")) {}
  GraphTimer(const GraphTimer&) = delete;
  GraphTimer& operator=(const GraphTimer&) = delete;
  ~GraphTimer() { backend_.destroy_stream(stream_); }

  double seconds(const std::function<void(BackendStream*)>& work) {
    backend_.begin_capture(stream_);
    work(stream_);
    BackendGraph* graph = backend_.end_capture(stream_);
    std::vector<double> times;
    for (int i = 0; i <= kLaunches; ++i) {  // The first one warms up.
      const Stopwatch watch;
      backend_.launch(graph, stream_);
      backend_.synchronize(stream_);
      if (i > 0) times.push_back(watch.seconds());
    }
    backend_.destroy_graph(graph);
    std::nth_element(times.begin(), times.begin() + kLaunches / 2, times.end());
    return times[kLaunches / 2];
  }

 private:
  Backend& backend_;
  BackendStream* stream_;
};

// One call of `op`, each after `flush` if there is one: launches with the op less launches without it.
double time_op(GraphTimer& timer, Backend& backend, const Submission& op, const Submission* flush) {
  const auto many = [&](int calls, bool with_op) {
    return timer.seconds([&](BackendStream* stream) {
      for (int i = 0; i < calls; ++i) {
        if (flush != nullptr) backend.submit(stream, *flush);
        if (with_op) backend.submit(stream, op);
      }
    });
  };
  const int calls = static_cast<int>(std::clamp(kLaunchSeconds / many(1, true), 1.0, double{kMostCalls}));
  const double rest = flush != nullptr ? many(calls, false) : 0;
  return std::max(many(calls, true) - rest, 0.0) / calls;
}

double ceiling_of(Backend& backend, const Submission& op, const OpWork& work, double copy_bytes_per_second) {
  if (work.bound == Bound::bandwidth) return copy_bytes_per_second > 0 ? work.bytes / copy_bytes_per_second : 0;
  return backend.ceiling(op);
}

double copy_rate(GraphTimer& timer, Backend& backend, void* memory, std::size_t bytes) {
  constexpr int kCopies = 16;
  char* half = static_cast<char*>(memory) + bytes / 2;
  const double seconds = timer.seconds([&](BackendStream* stream) {
    for (int i = 0; i < kCopies; ++i) backend.copy(stream, half, memory, bytes / 2, CopyKind::device_to_device);
  });
  return kCopies * static_cast<double>(bytes) / seconds;
}

MicrobatchLengths lengths_of(const Microbatch& microbatch) {
  MicrobatchLengths lengths;
  for (const Document& document : microbatch.documents) {
    lengths.push_back(static_cast<std::int64_t>(document.tokens.size()));
  }
  return lengths;
}

}  // namespace

KernelTimes time_kernels(const Scenario& given, const std::string& device_kind, const std::string& only,
                         const std::function<void(const KernelTime&)>& done) {
  Scenario scenario = given;
  scenario.cuda_graph.impl = GraphImpl::none;
  scenario.cuda_graph.modules.clear();
  const auto data = open_data(scenario);
  OpRecorder recorder;
  Device device(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed)), &recorder);
  Trainer trainer(device, scenario, *data, {.dry_run_ledger = false});
  recorder.recording = true;
  trainer.step();
  recorder.recording = false;

  const StepData step = data->training(0);
  Backend& backend = device.backend();
  GraphTimer timer(backend);
  KernelTimes times;
  std::optional<Flush> flush;
  if (device_kind == "cuda") {
    flush.emplace(device);
    times.copy_bytes_per_second = copy_rate(timer, backend, flush->memory(), Flush::bytes());
  }
  for (const auto& [text, entry] : recorder.ops) {
    if (text.find(only) == std::string::npos) continue;
    const double pairs = entry.microbatch < 0
                             ? 0
                             : causal_pairs(lengths_of(step.microbatches[static_cast<std::size_t>(entry.microbatch)]));
    times.list.push_back({.op = text,
                          .times = entry.times,
                          .work = work_of(entry.op, pairs),
                          .seconds = time_op(timer, backend, entry.op, flush ? &flush->op() : nullptr)});
    KernelTime& made = times.list.back();
    made.ceiling = ceiling_of(backend, entry.op, made.work, times.copy_bytes_per_second);
    done(made);
  }
  std::stable_sort(times.list.begin(), times.list.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.times * a.seconds > b.times * b.seconds; });
  return times;
}

}  // namespace lockstep
