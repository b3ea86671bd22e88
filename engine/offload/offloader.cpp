#include "engine/offload/offloader.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "engine/tensors/stored_tensor.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
Offloader::Group::Group(Device& device, const OffloadGroup& planned, int slots) : plan(planned) {
  for (int slot = 0; slot < slots; ++slot) {
    d2h_done.emplace_back(device, "d2h done");
    h2d_done.emplace_back(device, "h2d done");
  }
  if (delayed()) last_read.emplace(device, "last read");
}

Offloader::Offloader(Device& device, const Stream& compute, const Scenario& scenario,
                     OffloadPlan plan, CopyQueues& queues, RowsInUse rows_in_use,
                     const BinMemory& memory)
    : device_(device),
      compute_(compute),
      plan_(std::move(plan)),
      max_inflight_(scenario.offload.max_inflight),
      rotates_(faulty("offload-rotates-buffers-of-a-graph",
                      scenario.cuda_graph.impl != GraphImpl::full_iteration, true)),
      rows_in_use_(std::move(rows_in_use)),
      pool_(device),
      written_at_(plan_.segments),
      delayed_at_(plan_.segments),
      d2h_at_(plan_.segments),
      h2d_at_(plan_.last_step()),
      needed_at_(plan_.last_step()),
      queues_(queues) {
  if (plan_.empty()) return;
  if (queues_.d2h == nullptr) {
    queues_.d2h = std::make_shared<const Stream>(device, "d2h");
    queues_.h2d = std::make_shared<const Stream>(device, "h2d");
  }
  d2h_ = queues_.d2h;
  h2d_ = queues_.h2d;
  fork_ = std::make_unique<Event>(device, "offload fork");
  for (int set = 0; set < plan_.sets; ++set) {
    for (const std::int64_t bytes : plan_.buffers) {
      void* const elsewhere = memory(static_cast<int>(buffers_.size()), bytes);
      buffers_.push_back(elsewhere != nullptr ? elsewhere
                                              : pool_.make<std::uint8_t>(1, bytes).data);
    }
  }
  for (const OffloadGroup& group : plan_.groups) {
    if (!group.is_resident) add_group(group);
  }
  // The group that is needed first is copied first.
  const auto earlier = [](const Group* a, const Group* b) {
    return a->plan.h2d.end < b->plan.h2d.end;
  };
  for (Groups& groups : h2d_at_) std::stable_sort(groups.begin(), groups.end(), earlier);
  const std::int64_t slack = faulty("offload-without-slack", plan_.pool_slack, 0);
  for (auto& [bytes, spares] : spares_) {
    for (std::int64_t i = 0; i < slack; ++i) spares.push_back(make_pinned(bytes));
  }
  open_.buffer_d2h.resize(buffers_.size());
  open_.pinned_h2d.resize(pinned_.size());
  if (plan_.captured) prepare_captured();
}

// Copies in graphs begin within the pass of their segment, the others behind it.
void Offloader::prepare_captured() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) bin_left_.emplace_back(device_, "bin left");
  if (queues_.latest_out == nullptr) {
    queues_.latest_out = std::make_unique<const Event>(device_, "latest copy out");
    queues_.latest_in = std::make_unique<const Event>(device_, "latest copy in");
  }
  lanes_ = std::make_unique<CopyLanes>(device_, compute_, plan_);
  for (const Groups& groups : d2h_at_) {
    for (const bool in_graph : {true, false}) {
      std::copy_if(groups.begin(), groups.end(), std::back_inserter(in_order_),
                   [=](const Group* group) { return group->plan.leaves_in_graph == in_graph; });
    }
  }
  for (std::size_t i = 0; i < in_order_.size(); ++i) {
    in_order_[i]->place = static_cast<std::int64_t>(i);
    in_order_[i]->left_in_capture.emplace(device_, "d2h done in a capture");
  }
}

int Offloader::make_pinned(std::int64_t bytes) {
  pinned_.emplace_back(device_, bytes);
  return static_cast<int>(pinned_.size()) - 1;
}

std::int64_t Offloader::spare_buffers() const {
  std::int64_t count = 0;
  for (const auto& [bytes, spares] : spares_) count += std::ssize(spares);
  return count;
}

// The pinned buffers of a group: [slot][tensor].
std::vector<std::vector<int>> Offloader::make_host_copies(const OffloadGroup& planned, int slots) {
  std::vector<std::vector<int>> own(slots);
  for (std::vector<int>& copies : own) {
    for (const OffloadTensor& tensor : planned.tensors) copies.push_back(make_pinned(tensor.bytes));
  }
  const std::vector<std::vector<int>> shared(own.size(), own.front());
  return faulty("offload-shares-pinned-buffers-between-slots", own, shared);
}

// The step at which the copies back of a group are called.
static int return_step(const OffloadGroup& planned) {
  const int reader = planned.returns_in_graph ? planned.h2d.begin : planned.h2d.end;
  return faulty("reload-begins-at-its-reader", planned.h2d.begin, reader);
}

void Offloader::add_group(const OffloadGroup& planned) {
  const auto slots = static_cast<int>(plan_.slots);
  Group& group = *groups_.emplace_back(std::make_unique<Group>(device_, planned, slots));
  group.host_copies = make_host_copies(planned, slots);
  for (const OffloadTensor& tensor : planned.tensors) {
    written_at_[tensor.written].push_back(&tensor);
    spares_[tensor.bytes];
  }
  if (group.delayed()) delayed_at_[planned.last_read].push_back(&group);
  const int begin = planned.d2h.begin, never = -1;
  const int launched = faulty("delayed-offload-is-dropped", begin, group.delayed() ? never : begin);
  d2h_at_[faulty("offload-forgets-a-group", launched, groups_.size() == 1 ? never : launched)]
      .push_back(&group);
  h2d_at_[return_step(planned)].push_back(&group);
  needed_at_[planned.h2d.end].push_back(&group);
}

std::size_t Offloader::buffer_index(const OffloadTensor& tensor, int slot) const {
  const std::size_t own = plan_.buffer_of(tensor, slot);
  return faulty("offload-bins-of-one-set", own, own % plan_.buffers.size());
}

void* Offloader::place(const std::string& name, int slot, std::size_t bytes) const {
  for (const auto& group : groups_) {
    for (const OffloadTensor& tensor : group->plan.tensors) {
      if (tensor.name != name) continue;
      require(static_cast<std::size_t>(tensor.bytes) == bytes,
              "the plan knows the size of every tensor that it moves");
      return buffers_[buffer_index(tensor, slot)];
    }
  }
  return nullptr;
}

// ---- Passes -------------------------------------------------------------------------------------

void Offloader::enter_forward(int segment, int slot) {
  // What a graph waits for is fixed, so copies of earlier passes cannot count.
  if (plan_.captured && segment < 0) queues_.in_flight.clear();
  for (const OffloadTensor* tensor : written_at_[segment]) {
    const Event* d2h = open_.buffer_d2h[buffer_index(*tensor, slot)];
    if (d2h != nullptr) compute_.wait(*d2h);
  }
}

// A delayed copy is submitted behind the launch of a graph but waits only for the last reader of
// its tensors, so that it runs beside that graph. Groups are in forward order: delayed ones come
// before those of this segment.
void Offloader::leave_forward(int segment, int slot) {
  for (const Group* group : delayed_at_[segment]) compute_.record(*group->last_read);
  const Groups& groups = d2h_at_[segment];
  const bool any_now = std::any_of(groups.begin(), groups.end(), [](const Group* group) {
    return !group->delayed() && !group->plan.leaves_in_graph;
  });
  if (any_now) compute_.record(*fork_);
  for (Group* group : groups) {
    if (group->plan.leaves_in_graph) note_out(*group, slot);
  }
  bool forked = faulty("delayed-offload-waits-for-all-of-compute", false, any_now);
  if (forked) d2h_->wait(*fork_);
  for (Group* group : groups) {
    if (group->plan.leaves_in_graph) continue;
    if (group->delayed()) {
      d2h_->wait(*group->last_read);
    } else if (!std::exchange(forked, true)) {
      d2h_->wait(*fork_);
    }
    take_turn(*d2h_);
    copy_out(*group, slot);
    end_turn(*d2h_);
    delayed += group->delayed();
  }
}

void Offloader::start_h2d(int step, int slot) {
  bool forked = false;
  for (Group* group : h2d_at_[step]) {
    if (group->plan.returns_in_graph) {
      note_in(*group, slot);
      continue;
    }
    if (!std::exchange(forked, true)) {
      compute_.record(*fork_);
      h2d_->wait(*fork_);
    }
    take_turn(*h2d_);
    copy_in(*group, slot);
    end_turn(*h2d_);
  }
}

void Offloader::prefetch(int steps_behind, int slot) {
  for (const int step : open_.early.due(plan_, slot, steps_behind)) start_h2d(step, slot);
}

void Offloader::enter_backward(int segment, int slot) {
  if (segment == plan_.segments) {
    // Not every backward pass has one before it that could have launched its early copies.
    const std::vector<int> missed = open_.early.missed(plan_, slot), none;
    const std::vector<int> steps =
        faulty("reload-without-a-forward-pass-is-forgotten", missed, none);
    for (const int step : steps) start_h2d(step, slot);
  }
  start_h2d(plan_.backward_step(segment), slot);
  for (const Group* group : needed_at_[plan_.backward_step(segment)]) {
    if (!group->plan.leaves_in_graph) compute_.wait(at(group->h2d_done, slot));
    // Its d2h copy is complete if its h2d copy is.
    std::erase(queues_.in_flight, &at(group->d2h_done, slot));
  }
}

std::int64_t Offloader::due(int slot) const {
  std::int64_t sum = 0;
  for (const auto& group : groups_) {
    for (std::size_t i = 0; i < group->plan.tensors.size(); ++i) sum += bytes_of(*group, slot, i);
  }
  return sum;
}

// ---- Copies -------------------------------------------------------------------------------------

// Device and pinned buffers have room for all rows. With no rows in use there is no copy, and the
// event of the group follows what was submitted before.
std::int64_t Offloader::bytes_of(const Group& group, int slot, std::size_t tensor) const {
  const OffloadTensor& planned = group.plan.tensors[tensor];
  if (planned.rows == 0) return planned.bytes;
  const std::int64_t rows = rows_in_use_(group.plan.layer, slot);
  if (planned.segments == 0 || rows == 0) return planned.bytes / planned.rows * rows;
  return planned.bytes / transposed_columns(planned.rows, planned.segments) *
         transposed_columns(rows, planned.segments);
}

// Swaps the slot's pinned buffer for the one that has been unused for longest.
void Offloader::rotate_pinned(Group& group, int slot, std::size_t tensor) {
  std::deque<int>& spares = spares_[group.plan.tensors[tensor].bytes];
  if (!rotates_ || spares.empty()) return;
  int& mine = at(group.host_copies, slot)[tensor];
  spares.push_back(std::exchange(mine, spares.front()));
  spares.pop_front();
}

void Offloader::copy_out(Group& group, int slot) {
  const StepLocationScope scope(device_, group.plan.layer, "offload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  const Event& done = at(group.d2h_done, slot);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    rotate_pinned(group, slot, i);
    const int to = at(group.host_copies, slot)[i];
    const std::size_t from = buffer_index(tensors[i], slot);
    const Event* h2d = at(open_.pinned_h2d, to);
    if (h2d != nullptr) d2h_->wait(*h2d);
    const std::int64_t bytes = bytes_of(group, slot, i);
    if (bytes > 0) {
      d2h_->copy(at(pinned_, to).data(), buffers_[from], bytes, CopyKind::device_to_host,
                 tensors[i].name);
    }
    if (plan_.captured) d2h_->record(bin_left_[from]);
    open_.buffer_d2h[from] = &done;
    moved.out += bytes;
  }
  d2h_->record(done);
  throttle(done, Throttle::waits);
}

// The copies were submitted inside of the pass, or launched with its graph.
void Offloader::note_out(Group& group, int slot) {
  const Event& done = left(group, slot);
  for (const OffloadTensor& tensor : group.plan.tensors) {
    open_.buffer_d2h[buffer_index(tensor, slot)] =
        faulty("bin-rewritten-beside-the-tail-of-a-graph", &done, nullptr);
  }
  throttle(done, Throttle::counts);
}

std::int64_t Offloader::inflight_limit() const {
  constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max();
  const std::int64_t asked = max_inflight_.value_or(kNoLimit);
  const std::int64_t newest = max_inflight_ ? 0 : kNoLimit;
  return faulty("offload-awaits-no-copy",
                faulty("throttle-waits-for-the-newest-copy", asked, newest), kNoLimit);
}

// Compute waits until at most `max_inflight` d2h copies are open. In a graph of a whole iteration
// this join lets memory return.
void Offloader::throttle(const Event& done, Throttle how) {
  queues_.in_flight.push_back(&done);
  const std::int64_t limit = inflight_limit();
  while (std::ssize(queues_.in_flight) > limit) {
    const Event* const oldest = queues_.in_flight.front();
    const Event* const awaited =
        faulty("throttle-waits-for-the-last-copy", oldest, queues_.in_flight.back());
    if (how == Throttle::waits) compute_.wait(*awaited);
    queues_.in_flight.erase(queues_.in_flight.begin());
  }
  queues_.most_in_flight =
      std::max<std::int64_t>(queues_.most_in_flight, std::ssize(queues_.in_flight));
}

void Offloader::copy_in(Group& group, int slot) {
  const StepLocationScope scope(device_, group.plan.layer, "reload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  const Event& done = at(group.h2d_done, slot);
  const int source = faulty("reload-takes-another-slot", slot, 0);
  const int target = faulty("offload-mirrors-only-the-way-out", slot, slot % plan_.sets);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const int from = at(group.host_copies, source)[i];
    const std::size_t to = buffer_index(tensors[i], target);
    // The last d2h copy out of this buffer is the tensor's own, or one behind it.
    const Event* d2h = std::exchange(open_.buffer_d2h[to], nullptr);
    if (d2h != nullptr) h2d_->wait(*d2h);
    const std::int64_t bytes = bytes_of(group, slot, i);
    if (bytes > 0) {
      h2d_->copy(buffers_[to], at(pinned_, from).data(), bytes, CopyKind::host_to_device,
                 tensors[i].name);
    }
    at(open_.pinned_h2d, from) = &done;
    moved.in += bytes;
  }
  h2d_->record(done);
}

void Offloader::note_in(Group& group, int slot) {
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    open_.buffer_d2h[buffer_index(tensors[i], slot)] = nullptr;
    at(open_.pinned_h2d, at(group.host_copies, slot)[i]) = &returned(group, slot);
  }
}

// The events of a group, which all its copies of that direction end with.
const Event& Offloader::left(const Group& group, int slot) const {
  return at(group.d2h_done, slot);
}
const Event& Offloader::returned(const Group& group, int slot) const {
  const Group* own = faulty("captured-copies-share-an-event", &group, groups_.front().get());
  return at(own->h2d_done, slot);
}

// A step brings back everything that it sent, each h2d copy behind its d2h copy, and compute waits
// for each h2d copy before it reads the tensor.
void Offloader::drain() {
  OpenEvents none;
  none.buffer_d2h.resize(buffers_.size());
  none.pinned_h2d.resize(pinned_.size());
  open_ = faulty("offload-keeps-events-across-captures", none, open_);
  const std::vector<const Event*> nothing;
  queues_.in_flight = faulty("offload-keeps-events-across-captures", nothing, queues_.in_flight);
}

void Offloader::synchronize() const {
  if (d2h_) d2h_->synchronize();
  if (h2d_) h2d_->synchronize();
  if (lanes_) lanes_->synchronize();
}

// ---- Reading and counting -----------------------------------------------------------------------

void Offloader::point_to_copies(std::vector<NamedTensor>& tensors, int slot) {
  if (plan_.empty()) return;
  if (plan_.captured) {
    for (const auto& group : groups_) d2h_->wait(at(group->d2h_done, slot));
  }
  d2h_->synchronize();
  compute_.synchronize();  // A graph contains its copies.
  for (NamedTensor& named : tensors) {
    for (const auto& group : groups_) {
      for (std::size_t i = 0; i < group->plan.tensors.size(); ++i) {
        if (group->plan.tensors[i].name != named.name) continue;
        named.tensor.data = at(pinned_, at(group->host_copies, slot)[i]).data();
        named.tensor.on_host = true;
      }
    }
  }
}

std::vector<NamedTensor> Offloader::without_moved(const std::vector<NamedTensor>& tensors) const {
  std::set<std::string> moved;
  for (const auto& group : groups_) {
    for (const auto& tensor : group->plan.tensors) moved.insert(tensor.name);
  }
  std::vector<NamedTensor> left;
  for (const NamedTensor& named : tensors) {
    if (!moved.contains(named.name)) left.push_back(named);
  }
  return left;
}

std::int64_t Offloader::count_launch(const Ledger& ledger) {
  std::int64_t copies = 0;
  if (plan_.empty()) return copies;
  for (const IssuedCall& entry : ledger.entries()) {
    const auto* copy = entry.as<CopyCall>();
    if (!copy) continue;
    if (entry.stream == d2h_->id()) moved.out += static_cast<std::int64_t>(copy->bytes);
    if (entry.stream == h2d_->id()) moved.in += static_cast<std::int64_t>(copy->bytes);
    copies += entry.stream == d2h_->id() || entry.stream == h2d_->id();
  }
  return copies;
}

}  // namespace lockstep
