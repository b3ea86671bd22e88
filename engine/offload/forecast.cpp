#include "engine/offload/forecast.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/offload/time_model.h"
#include "engine/plan/schedule.h"

namespace lockstep {
namespace {

// What happens around one segment, or at one position, in the order in which it happens.
template <class Item>
class BySegment {
 public:
  explicit BySegment(int last) : lists_(static_cast<std::size_t>(last) + 2) {}
  std::vector<Item>& operator[](int segment) { return lists_[static_cast<std::size_t>(segment) + 1]; }

 private:
  std::vector<std::vector<Item>> lists_;
};

// The passes of a step one behind the other, as the offloader runs them.
class Timeline {
 public:
  explicit Timeline(const OffloadPlan& plan)
      : plan_(plan),
        back_(plan.groups.size()),
        ready_(plan.groups.size()),
        left_(static_cast<std::size_t>(plan.sets) * plan.bins.size()),
        written_(plan.segments),
        made_(plan.segments),
        leaving_(plan.segments),
        used_(plan.segments),
        returning_(plan.earliest()) {
    result_.awaited.resize(plan.groups.size());
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      if (!plan.groups[g].stays) add(g);
    }
    // What is read first comes back first.
    for (int position = 0; position <= plan.earliest(); ++position) {
      std::stable_sort(returning_[position].begin(), returning_[position].end(),
                       [&](auto a, auto b) { return group(a).used > group(b).used; });
    }
  }

  OffloadForecast run() {
    const std::vector<Pass> passes =
        one_forward_one_backward(static_cast<int>(plan_.microbatches), static_cast<int>(plan_.slots));
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const int slot = passes[i].microbatch % static_cast<int>(plan_.slots);
      passes[i].forward ? forward(slot, plan_.slot_to_come(passes, i)) : backward(slot);
    }
    const auto microbatches = static_cast<double>(plan_.microbatches);
    for (int i = 0; i <= plan_.segments; ++i) result_.compute += microbatches * (of_forward(i) + of_backward(i));
    result_.stalled = std::max(0.0, now_ - result_.compute);
    result_.slowed = kSlowedByCopies * (result_.out + result_.back) / 2;
    return result_;
  }

 private:
  void add(std::size_t g) {
    for (const OffloadTensor& tensor : group(g).tensors) written_[tensor.written].push_back(&tensor);
    made_[group(g).ready].push_back(g);
    leaving_[group(g).leaves].push_back(g);
    used_[group(g).used].push_back(g);
    returning_[group(g).returns].push_back(g);
  }
  const OffloadGroup& group(std::size_t g) const { return plan_.groups[g]; }
  double of_forward(int segment) const { return plan_.seconds.forward[static_cast<std::size_t>(segment)]; }
  double of_backward(int segment) const { return plan_.seconds.backward[static_cast<std::size_t>(segment)]; }
  double& left(const OffloadTensor& tensor, int slot) { return left_[plan_.bin_of(tensor, slot)]; }

  // A segment waits for what leaves the bins that it writes.
  void forward(int slot, std::optional<int> next) {
    for (int i = -1; i <= plan_.segments; ++i) {
      if (next && i >= 0) begin_return(plan_.ahead(i), *next);
      for (const OffloadTensor* tensor : written_[i]) now_ = std::max(now_, left(*tensor, slot));
      const double begin = now_;
      if (i >= 0) now_ += of_forward(i);
      for (const std::size_t g : made_[i]) ready_[g] = now_;
      for (const std::size_t g : leaving_[i]) leave(group(g), slot, std::max(begin, ready_[g]));
    }
    ahead_ = next;
  }
  void leave(const OffloadGroup& group, int slot, double ready) {
    const double begin = std::max(out_, ready), seconds = copy_seconds(group.bytes(), begin < in_);
    out_ = begin + seconds;
    result_.out += seconds;
    for (const OffloadTensor& tensor : group.tensors) left(tensor, slot) = out_;
    if (!plan_.max_inflight) return;
    under_way_.push_back(out_);
    for (; static_cast<std::int64_t>(under_way_.size()) > *plan_.max_inflight; under_way_.pop_front()) {
      now_ = std::max(now_, under_way_.front());
    }
  }

  // The link carries both ways at once; a copy back comes after the last copy out of its bin.
  void begin_return(int position, int slot) {
    for (const std::size_t g : returning_[position]) {
      in_ = std::max(in_, now_);
      for (const OffloadTensor& tensor : group(g).tensors) in_ = std::max(in_, left(tensor, slot));
      const double seconds = copy_seconds(group(g).bytes(), in_ < out_);
      back_[g] = in_ += seconds;
      result_.back += seconds;
    }
  }
  void backward(int slot) {
    for (int early = plan_.earliest(); ahead_ != slot && early > plan_.segments; --early) begin_return(early, slot);
    ahead_.reset();
    for (int i = plan_.segments; i >= 0; --i) {
      begin_return(i, slot);
      for (const std::size_t g : used_[i]) {
        result_.awaited[g] += std::max(0.0, back_[g] - now_);
        now_ = std::max(now_, back_[g]);
      }
      now_ += of_backward(i);
    }
  }

  const OffloadPlan& plan_;
  OffloadForecast result_;
  double now_ = 0, out_ = 0, in_ = 0;  // When compute and either way of the link are free.
  std::vector<double> back_, ready_;   // When each group is there, of the last microbatch that made it or got it back.
  std::vector<double> left_;           // When the last copy out of each bin of each set is through.
  std::deque<double> under_way_;       // When the copies are through that compute has not waited for.
  std::optional<int> ahead_;           // The slot whose early copies back have begun.
  BySegment<const OffloadTensor*> written_;
  BySegment<std::size_t> made_, leaving_, used_, returning_;
};

}  // namespace

double OffloadForecast::hidden() const { return out == 0 ? 1 : std::max(0.0, 1 - stalled / (out + back)); }

bool OffloadForecast::fits() const {
  constexpr double kHardly = 0.005;
  return stalled <= kHardly * compute;
}

OffloadForecast forecast(const OffloadPlan& plan) { return Timeline(plan).run(); }

}  // namespace lockstep
