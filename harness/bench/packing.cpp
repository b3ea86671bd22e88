#include "harness/bench/packing.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "harness/base/errors.h"
#include "harness/bench/captured_work.h"
#include "harness/bench/median.h"
#include "harness/bench/recorded_step.h"
#include "harness/bench/steps.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/pack_metadata.h"
#include "kernels/ops/scan.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr double kRoundSeconds = 5e-3;  // A measurement holds as many calls as fill this.
constexpr int kMostCalls = 64;
constexpr int kFewestRounds = 9;

using RowDone = std::function<void(const PackingRow&)>;

bool is_asked(const PackingRow& row, const std::string& only) {
  return (row.name + " " + row.mode).find(only) != std::string::npos;
}

// 1, 2, .. 12 shares of the rows; the last document has the rest.
MicrobatchLengths pack_of(std::int64_t rows) {
  constexpr std::int64_t kShares = kBenchDocuments * (kBenchDocuments + 1) / 2;
  MicrobatchLengths lengths;
  std::int64_t left = rows;
  for (std::int64_t i = 1; i < kBenchDocuments; ++i) {
    lengths.push_back(rows * i / kShares);
    left -= lengths.back();
  }
  lengths.push_back(left);
  return lengths;
}

// Layers of each kind whose ops work on documents, of the scenario's sizes.
Scenario small_model(Scenario s) {
  std::string pattern;
  for (const char symbol : {'M', '*'}) {
    if (s.model.pattern.find(symbol) != std::string::npos) pattern += symbol;
  }
  s.model.pattern = pattern;
  s.model.recompute.clear();
  s.model.vocab = std::min<std::int64_t>(s.model.vocab, 256);
  s.training.microbatches = s.training.in_flight = 1;
  return without_graphs(std::move(s));
}

// One op at each capacity, on a device of its own.
class OpByCapacity {
 public:
  OpByCapacity(std::deque<RecordedStep>& steps, const std::string& name) {
    for (RecordedStep& step : steps) {
      const auto named = [&](const auto& op) { return op.first.starts_with(name + " "); };
      const auto found = std::ranges::find_if(step.ops(), named);
      if (found == step.ops().end()) continue;
      runs_.push_back(std::make_unique<Run>(step.backend(), found->second.op));
    }
  }
  bool is_there() const { return runs_.size() == kBenchCapacities.size(); }

  // Both modes in the same rounds.
  void time(double budget, PackingRow& eager, PackingRow& graph) {
    const int calls = static_cast<int>(
        std::clamp(kRoundSeconds / runs_.front()->seconds_of_one(), 1.0, double{kMostCalls}));
    for (const auto& run : runs_) run->prepare(calls);
    const Stopwatch watch;
    for (std::size_t round = 0; round < kFewestRounds || watch.seconds() < budget; ++round) {
      for (std::size_t i = 0; i < runs_.size(); ++i) runs_[(i + round) % runs_.size()]->measure();
    }
    read(&Run::eager, eager);
    read(&Run::graph, graph);
  }

 private:
  struct Run {
    Run(Backend& backend, const Submission& op) : stream(backend), op(op) {}
    void submit(int times) const {
      for (int i = 0; i < times; ++i) stream.backend().submit(stream.get(), op);
    }
    double seconds_of_one() const {
      submit(1);
      stream.backend().synchronize(stream.get());  // Warm.
      return stream.seconds([&] { submit(1); });
    }
    void prepare(int times) {
      calls = times;
      captured.emplace(stream, [&](BackendStream*) { submit(calls); });
      captured->seconds();
    }
    void measure() {
      eager.push_back(stream.seconds([&] { submit(calls); }) / calls);
      graph.push_back(captured->seconds() / calls);
    }
    BenchStream stream;
    Submission op;
    int calls = 1;
    std::optional<CapturedWork> captured;
    std::vector<double> eager, graph;  // Seconds of a call, by round.
  };
  void read(std::vector<double> Run::*times, PackingRow& row) const {
    const std::vector<double>& first = runs_.front().get()->*times;
    const std::vector<double>& last = runs_.back().get()->*times;
    std::vector<double> ratios;  // Within a round the clocks are the same.
    for (std::size_t i = 0; i < first.size(); ++i) ratios.push_back(last[i] / first[i]);
    row.cost = median(ratios) - 1;
    for (std::size_t i = 0; i < runs_.size(); ++i) row.seconds[i] = median(runs_[i].get()->*times);
  }
  std::vector<std::unique_ptr<Run>> runs_;
};

struct Ops {
  std::vector<const char*> names;
  bool promised;
};

void time_ops(const Scenario& model, const std::string& device, double budget, const Ops& ops,
              const std::string& only, const RowDone& done) {
  std::vector<std::pair<PackingRow, PackingRow>> asked;
  for (const char* const name : ops.names) {
    PackingRow eager{.name = name, .mode = "eager", .promised = ops.promised && device == "cuda"};
    PackingRow graph = eager;
    graph.mode = "graph";
    if (is_asked(eager, only) || is_asked(graph, only)) asked.emplace_back(eager, graph);
  }
  if (asked.empty()) return;
  std::deque<RecordedStep> steps;  // All at once, so that capacities can take turns.
  for (const std::int64_t capacity : kBenchCapacities) {
    Scenario s = model;
    s.cuda_graph.max_packed_seqs = {capacity};
    steps.emplace_back(s, device);
  }
  for (auto& [eager, graph] : asked) {
    OpByCapacity op(steps, eager.name);
    if (!op.is_there()) continue;  // The pattern lacks the layer.
    op.time(budget, eager, graph);
    for (const PackingRow* const row : {&eager, &graph}) {
      if (is_asked(*row, only)) done(*row);
    }
  }
}

void time_whole_steps(const Scenario& scenario, const std::string& name, const std::string& device,
                      double budget, const std::string& only, const RowDone& done) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial}) {
    const bool eager = impl == GraphImpl::none;
    PackingRow row{.name = name, .mode = eager ? "eager" : "graph"};
    if (!is_asked(row, only)) continue;
    for (std::size_t i = 0; i < kBenchCapacities.size() && row.not_run.empty(); ++i) {
      Scenario s = eager ? without_graphs(scenario) : scenario;
      s.cuda_graph.max_packed_seqs = {kBenchCapacities[i]};
      const StepTime time = time_steps(s, impl, device, budget);
      row.not_run = time.not_run;
      row.seconds[i] = time.median;
    }
    if (row.not_run.empty()) row.cost = row.seconds.back() / row.seconds.front() - 1;
    done(row);
  }
}

// Attention by cuDNN, or why there is none.
void time_cudnn(Scenario scenario, const std::string& device, double budget,
                const std::string& only, const RowDone& done) {
  scenario.model.core_attention = CoreAttention::cudnn;
  PackingRow row{.name = "cudnn"};
  if (const auto errors = check_legality(scenario); !errors.empty()) {
    row.not_run = errors.front().text();
    return done(row);
  }
  try {
    time_ops(small_model(scenario), device, budget,
             {{CudnnAttentionForward::kName, CudnnAttentionBackward::kName}, false}, only, done);
    time_whole_steps(scenario, "step by cudnn", device, budget, only, done);
  } catch (const DeviceError& error) {
    row.not_run = error.what();
    done(row);
  }
}

}  // namespace

void time_packing(const Scenario& given, const std::string& device, double budget,
                  const std::string& only, const RowDone& done) {
  Scenario scenario = with_one_pack(given, pack_of(given.data.pack_length));
  scenario.offload = {};
  scenario.model.core_attention = CoreAttention::native;
  const Scenario small = small_model(scenario);
  if (small.model.pattern.empty())
    throw RequestError("--section packing: the pattern has no layer that works on documents");
  time_ops(
      small, device, budget,
      {{AttentionForward<float>::kName, AttentionBackward<float>::kName, ConvForward<float>::kName,
        ConvBackward<float>::kName, ScanForward<float>::kName, ScanBackward<float>::kName},
       true},
      only, done);
  time_ops(small, device, budget, {{PackMetadata::kName}, false}, only, done);
  time_whole_steps(scenario, "step", device, budget, only, done);
  if (small.model.pattern.find('*') != std::string::npos && device == "cuda")
    time_cudnn(scenario, device, budget, only, done);
}

}  // namespace lockstep
