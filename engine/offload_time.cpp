#include "engine/offload_time.h"

#include <algorithm>

#include "engine/nn/moe.h"
#include "engine/offload_plan.h"

namespace lockstep {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

// Of a layer's products in the forward pass: two operations for each weight and row.
double forward_flop(const Scenario& scenario, const Part& part) {
  const Scenario::Model& m = scenario.model;
  const double rows = number(scenario.data.pack_length), d = number(m.hidden);
  const double matrices = m.mlp.activation == MlpActivation::swiglu ? 3 : 2;
  switch (m.pattern[static_cast<std::size_t>(part.layer)]) {
    case 'M': {
      const double heads = number(m.mamba.d_inner / m.mamba.head_dim);
      const double columns = number(3 * m.mamba.d_inner + 2 * m.mamba.groups * m.mamba.state) + heads;
      return rows * (2 * d * columns + 7 * number(m.mamba.d_inner * m.mamba.state));
    }
    case '*':
      return rows * 2 * d * number((2 * m.attention.heads + 2 * m.attention.kv_heads) * m.attention.head_dim);
    case '-':
      return rows * 2 * d * number(m.mlp.hidden) * matrices;
    default: {
      double flop = 0;
      if (part.has(Stage::router))
        flop += rows * 2 * d * (number(m.moe.experts) + number(m.moe.shared_hidden) * matrices);
      if (part.has(Stage::experts))
        flop += number(ExpertBuffer(scenario).rows) * 2 * d * number(m.moe.hidden) * matrices;
      return flop;
    }
  }
}

class Timeline {
 public:
  explicit Timeline(const OffloadPlan& plan) : plan_(plan) { result_.awaited.resize(plan.groups.size()); }

  OffloadForecast run() {
    forward();
    backward();
    for (const double seconds : plan_.seconds) result_.compute += 3 * seconds;
    result_.copies = copy_seconds(plan_.bytes());
    result_.stalled = std::max(0.0, now_ - result_.compute);
    return result_;
  }

 private:
  template <class Body>
  void each_group(Body body) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (!plan_.groups[g].stays) body(plan_.groups[g], g);
    }
  }
  // A segment waits for what leaves the bins that it writes.
  void forward() {
    left_.resize(plan_.bins.size());
    std::vector<double> ready(plan_.groups.size());
    double link = 0;
    for (int i = -1; i <= plan_.segments; ++i) {
      each_group([&](const OffloadGroup& group, std::size_t) {
        for (const OffloadTensor& tensor : group.tensors) {
          if (tensor.written == i) now_ = std::max(now_, left_[static_cast<std::size_t>(tensor.bin)]);
        }
      });
      const double begin = now_;
      if (i >= 0) now_ += plan_.seconds[static_cast<std::size_t>(i)];
      each_group([&](const OffloadGroup& group, std::size_t g) {
        if (group.ready == i) ready[g] = now_;
        if (group.leaves != i) return;
        link = std::max({link, begin, ready[g]}) + copy_seconds(group.bytes());
        for (const OffloadTensor& tensor : group.tensors) left_[static_cast<std::size_t>(tensor.bin)] = link;
      });
    }
  }
  // The link carries both ways at once; a copy back comes after the last copy out of its bin.
  void backward() {
    std::vector<double> back(plan_.groups.size());
    double link = 0;
    for (int i = plan_.segments; i >= 0; --i) {
      for (int used = i; used >= 0; --used) {
        each_group([&](const OffloadGroup& group, std::size_t g) {
          if (group.returns != i || group.used != used) return;
          link = std::max(link, now_);
          for (const OffloadTensor& tensor : group.tensors) {
            link = std::max(link, left_[static_cast<std::size_t>(tensor.bin)]);
          }
          back[g] = link += copy_seconds(group.bytes());
        });
      }
      each_group([&](const OffloadGroup& group, std::size_t g) {
        if (group.used != i) return;
        result_.awaited[g] = std::max(0.0, back[g] - now_);
        now_ = std::max(now_, back[g]);
      });
      now_ += 2 * plan_.seconds[static_cast<std::size_t>(i)];
    }
  }

  const OffloadPlan& plan_;
  OffloadForecast result_;
  double now_ = 0;
  std::vector<double> left_;  // When the last copy out of each bin is through.
};

}  // namespace

std::vector<double> forward_seconds(const Scenario& scenario, const std::vector<Segment>& segments) {
  const bool bf16 = scenario.numerics.front() == Numerics::bf16;
  const double rate = bf16 ? kTensorFlopPerSecond : kFp32FlopPerSecond;
  std::vector<double> seconds;
  for (const Segment& segment : segments) {
    double flop = 0;
    for (const Part& part : segment.parts) flop += forward_flop(scenario, part);
    seconds.push_back(flop / rate);
  }
  seconds.push_back(2 * number(scenario.data.pack_length * scenario.model.hidden * scenario.model.vocab) / rate);
  return seconds;
}

double OffloadForecast::hidden() const { return copies == 0 ? 1 : std::max(0.0, 1 - stalled / (2 * copies)); }

OffloadForecast forecast(const OffloadPlan& plan) { return Timeline(plan).run(); }

}  // namespace lockstep
