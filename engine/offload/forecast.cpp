#include "engine/offload/forecast.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/offload/by_step.h"
#include "engine/offload/time_model.h"
#include "engine/plan/schedule.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Runs the passes of a training step one after the other, as the offloader does, and advances the
// time of each stream.
class Timeline {
 public:
  explicit Timeline(const OffloadPlan& plan)
      : plan_(plan),
        h2d_complete_(plan.groups.size()),
        last_read_(plan.groups.size()),
        buffer_free_(static_cast<std::size_t>(plan.sets) * plan.buffers.size()),
        written_at_(plan.segments),
        last_read_at_(plan.segments),
        d2h_at_(plan.segments),
        h2d_at_(plan.last_step()),
        needed_at_(plan.last_step()) {
    result_.awaited.resize(plan.groups.size());
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      if (!plan.groups[g].is_resident) add(g);
    }
    // The group that is needed first is copied first.
    const auto earlier = [&](std::size_t a, std::size_t b) {
      return group(a).h2d.end < group(b).h2d.end;
    };
    for (std::vector<std::size_t>& groups : h2d_at_)
      std::stable_sort(groups.begin(), groups.end(), earlier);
  }

  OffloadForecast run() {
    const int slots = static_cast<int>(plan_.slots);
    const std::vector<Pass> passes =
        one_forward_one_backward(static_cast<int>(plan_.microbatches), slots);
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const int slot = passes[i].microbatch % slots;
      passes[i].forward ? forward(slot, plan_.slot_to_come(passes, i)) : backward(slot);
    }
    const auto microbatches = static_cast<double>(plan_.microbatches);
    for (int i = 0; i <= plan_.segments; ++i) {
      result_.compute +=
          microbatches * (at(plan_.seconds.forward, i) + at(plan_.seconds.backward, i));
    }
    result_.stalled = std::max(0.0, compute_ - result_.compute);
    result_.slowed = kSlowedByCopies * (result_.d2h + result_.h2d) / 2;
    return result_;
  }

 private:
  void add(std::size_t g) {
    const OffloadGroup& moving = group(g);
    for (const OffloadTensor& tensor : moving.tensors)
      written_at_[tensor.written].push_back(&tensor);
    last_read_at_[moving.last_read].push_back(g);
    d2h_at_[moving.d2h.begin].push_back(g);
    h2d_at_[moving.h2d.begin].push_back(g);
    needed_at_[moving.h2d.end].push_back(g);
  }
  const OffloadGroup& group(std::size_t g) const { return plan_.groups[g]; }
  double& buffer_free(const OffloadTensor& tensor, int slot) {
    return buffer_free_[plan_.buffer_of(tensor, slot)];
  }

  // A segment waits for the d2h copies out of the buffers that it writes. `next` is the slot whose
  // backward pass follows, if its h2d copies may begin now.
  void forward(int slot, std::optional<int> next) {
    for (int step = -1; step <= plan_.segments; ++step) {
      if (next && step >= 0) start_h2d(step, *next);
      for (const OffloadTensor* tensor : written_at_[step])
        compute_ = std::max(compute_, buffer_free(*tensor, slot));
      const double begin = compute_;
      if (step >= 0) compute_ += at(plan_.seconds.forward, step);
      for (const std::size_t g : last_read_at_[step]) last_read_[g] = compute_;
      for (const std::size_t g : d2h_at_[step])
        start_d2h(group(g), slot, std::max(begin, last_read_[g]));
    }
    prefetched_ = next;
  }
  void start_d2h(const OffloadGroup& group, int slot, double ready) {
    const double begin = std::max(d2h_, ready);
    const double seconds =
        copy_seconds(group.bytes(), begin < h2d_ ? Link::both_ways : Link::alone);
    d2h_ = begin + seconds;
    result_.d2h += seconds;
    for (const OffloadTensor& tensor : group.tensors) buffer_free(tensor, slot) = d2h_;
    if (!plan_.max_inflight) return;
    in_flight_.push_back(d2h_);
    for (; std::ssize(in_flight_) > *plan_.max_inflight; in_flight_.pop_front()) {
      compute_ = std::max(compute_, in_flight_.front());
    }
  }

  // The link carries both ways at once; an h2d copy follows the last d2h copy out of its buffer.
  void start_h2d(int step, int slot) {
    for (const std::size_t g : h2d_at_[step]) {
      h2d_ = std::max(h2d_, compute_);
      for (const OffloadTensor& tensor : group(g).tensors)
        h2d_ = std::max(h2d_, buffer_free(tensor, slot));
      const double seconds =
          copy_seconds(group(g).bytes(), h2d_ < d2h_ ? Link::both_ways : Link::alone);
      h2d_complete_[g] = h2d_ += seconds;
      result_.h2d += seconds;
    }
  }
  // A backward pass starts all its h2d copies itself, unless a forward pass before it has begun
  // them.
  void backward(int slot) {
    const bool begun = prefetched_ == slot;
    prefetched_.reset();
    for (int step = plan_.first_h2d_step(); !begun && plan_.in_forward(step); ++step)
      start_h2d(step, slot);
    for (int step = plan_.segments + 1; step <= plan_.last_step(); ++step) {
      start_h2d(step, slot);
      for (const std::size_t g : needed_at_[step]) {
        result_.awaited[g] += std::max(0.0, h2d_complete_[g] - compute_);
        compute_ = std::max(compute_, h2d_complete_[g]);
      }
      compute_ += at(plan_.seconds.backward, plan_.segment_of(step));
    }
  }

  const OffloadPlan& plan_;
  OffloadForecast result_;
  double compute_ = 0, d2h_ = 0, h2d_ = 0;  // When each stream has run what was submitted so far.
  // Per group, for the latest microbatch that reached it.
  std::vector<double> h2d_complete_, last_read_;
  std::vector<double> buffer_free_;  // When the last d2h copy out of each buffer is complete.
  std::deque<double> in_flight_;   // When the d2h copies complete that compute has not waited for.
  std::optional<int> prefetched_;  // The slot whose h2d copies a forward pass has begun.
  ByStep<const OffloadTensor*> written_at_;
  ByStep<std::size_t> last_read_at_, d2h_at_, h2d_at_, needed_at_;  // Indices of groups.
};

}  // namespace

double OffloadForecast::hidden() const {
  return d2h == 0 ? 1 : std::max(0.0, 1 - stalled / (d2h + h2d));
}

bool OffloadForecast::fits() const {
  constexpr double kHardly = 0.005;
  return stalled <= kHardly * compute;
}

OffloadForecast forecast(const OffloadPlan& plan) { return Timeline(plan).run(); }

}  // namespace lockstep
