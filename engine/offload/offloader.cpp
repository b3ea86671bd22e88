#include "engine/offload/offloader.h"

#include <algorithm>
#include <utility>

#include "engine/tensors/stored_tensor.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

// What is submitted meanwhile belongs to a part of a layer; what comes later to where it belonged before.
class Placed {
 public:
  Placed(Device& device, int layer, const char* part) : device_(device), before_(device.place) {
    device.place.layer = layer;
    device.place.part = part;
  }
  ~Placed() { device_.place = before_; }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

 private:
  Device& device_;
  const Place before_;
};

}  // namespace

Offloader::Group::Group(Device& device, const OffloadGroup& planned, int slots) : plan(planned) {
  for (int slot = 0; slot < slots; ++slot) {
    left.emplace_back(device, "left");
    returned.emplace_back(device, "returned");
  }
  if (delayed()) made.emplace(device, "made");
}

Offloader::Offloader(Device& device, const Stream& compute, const Scenario& scenario, RowsInUse rows_in_use)
    : device_(device),
      compute_(compute),
      plan_(plan_offload(scenario)),
      max_inflight_(scenario.offload.max_inflight),
      rotates_(scenario.cuda_graph.impl != GraphImpl::full_iteration || fault("offload-rotates-buffers-of-a-graph")),
      rows_in_use_(std::move(rows_in_use)),
      pool_(device) {
  const auto points = static_cast<std::size_t>(plan_.segments) + 2;
  delayed_.resize(points);
  leaving_.resize(points);
  returning_.resize(static_cast<std::size_t>(plan_.earliest()) + 2);
  used_.resize(points);
  written_.resize(points);
  if (plan_.empty()) return;
  d2h_ = std::make_unique<Stream>(device, "d2h");
  h2d_ = std::make_unique<Stream>(device, "h2d");
  fork_ = std::make_unique<Event>(device, "offload fork");
  for (int set = 0; set < plan_.sets; ++set) {
    for (const std::int64_t bytes : plan_.bins) bins_.push_back({pool_.make<std::uint8_t>(1, bytes).data});
  }
  for (const OffloadGroup& group : plan_.groups) {
    if (!group.stays) add_group(group);
  }
  // What is read first comes back first.
  for (Groups& groups : returning_) {
    std::stable_sort(groups.begin(), groups.end(), [](auto* a, auto* b) { return a->plan.used > b->plan.used; });
  }
  for (auto& [bytes, spares] : spares_) {
    const std::int64_t slack = fault("offload-without-slack") ? 0 : plan_.slack;
    for (std::int64_t i = 0; i < slack; ++i) spares.push_back(make_pinned(bytes));
  }
}

int Offloader::make_pinned(std::int64_t bytes) {
  pinned_.push_back({PinnedBuffer(device_, static_cast<std::size_t>(bytes))});
  return static_cast<int>(pinned_.size()) - 1;
}

std::int64_t Offloader::spare_buffers() const {
  std::int64_t count = 0;
  for (const auto& [bytes, spares] : spares_) count += std::ssize(spares);
  return count;
}

void Offloader::add_group(const OffloadGroup& planned) {
  const auto slots = static_cast<int>(plan_.slots);
  Group& group = *groups_.emplace_back(std::make_unique<Group>(device_, planned, slots));
  for (const OffloadTensor& tensor : planned.tensors) {
    at(written_, tensor.written).push_back(&tensor);
    spares_[tensor.bytes];
  }
  for (int slot = 0; slot < slots; ++slot) {
    if (slot > 0 && fault("offload-shares-pinned-buffers-between-slots")) {
      group.copies.push_back(group.copies.front());
      continue;
    }
    group.copies.emplace_back();
    for (const OffloadTensor& tensor : planned.tensors) group.copies.back().push_back(make_pinned(tensor.bytes));
  }
  if (group.delayed()) at(delayed_, planned.ready).push_back(&group);
  at(leaving_, planned.leaves).push_back(&group);
  at(returning_, planned.returns).push_back(&group);
  at(used_, planned.used).push_back(&group);
}

std::size_t Offloader::bin_index(const OffloadTensor& tensor, int slot) const {
  const std::size_t bin = plan_.bin_of(tensor, slot);
  return fault("offload-bins-of-one-set") ? bin % plan_.bins.size() : bin;
}

void* Offloader::place(const std::string& name, int slot, std::size_t bytes) const {
  for (const auto& group : groups_) {
    for (const OffloadTensor& tensor : group->plan.tensors) {
      if (tensor.name != name) continue;
      require(static_cast<std::size_t>(tensor.bytes) == bytes, "the plan knows the size of what it moves");
      return bins_[bin_index(tensor, slot)].memory;
    }
  }
  return nullptr;
}

Offloader::Pinned& Offloader::copy_of(const Group& group, int slot, std::size_t tensor) {
  return pinned_[static_cast<std::size_t>(group.copies[static_cast<std::size_t>(slot)][tensor])];
}

// ---- Passes ---------------------------------------------------------------------------------------------------------

void Offloader::enter_forward(int segment, int slot) {
  for (const OffloadTensor* tensor : at(written_, segment)) {
    const Event* leaving = bin(*tensor, slot).leaving;
    if (leaving != nullptr) compute_.wait(*leaving);
  }
}

// A delayed copy is put behind the launch of a graph but waits for what made its tensors only, so that it runs beside
// that graph. In forward order: what was put off comes before what this segment leaves.
void Offloader::leave_forward(int segment, int slot) {
  for (const Group* group : at(delayed_, segment)) compute_.record(*group->made);
  const Groups& groups = at(leaving_, segment);
  const bool any_now = std::any_of(groups.begin(), groups.end(), [](const Group* group) { return !group->delayed(); });
  if (any_now) compute_.record(*fork_);
  bool forked = false;
  for (Group* group : groups) {
    if (group->delayed()) {
      if (fault("delayed-offload-is-dropped")) continue;
      d2h_->wait(*group->made);
    } else if (!std::exchange(forked, true)) {
      d2h_->wait(*fork_);
    }
    const bool forgotten = group == groups_.front().get() && fault("offload-forgets-a-group");
    if (!forgotten) copy_out(*group, slot);
    delayed += group->delayed();
  }
}

void Offloader::begin_return(int position, int slot) {
  const Groups& groups = at(returning_, position);
  if (groups.empty()) return;
  compute_.record(*fork_);
  h2d_->wait(*fork_);
  for (Group* group : groups) copy_in(*group, slot);
}

void Offloader::look_ahead(int segment, int slot) {
  if (plan_.ahead(segment) > plan_.earliest()) return;
  ahead_ = slot;
  begin_return(plan_.ahead(segment), slot);
}

void Offloader::enter_backward(int segment, int slot) {
  // The last backward passes of a step have no forward pass before them.
  const bool begun = segment < plan_.segments || std::exchange(ahead_, std::nullopt) == slot ||
                     fault("reload-without-a-forward-pass-is-forgotten");
  for (int early = plan_.earliest(); !begun && early > plan_.segments; --early) begin_return(early, slot);
  begin_return(segment, slot);
  for (Group* group : at(used_, segment)) {
    compute_.wait(group->returned[static_cast<std::size_t>(slot)]);
    std::erase(in_flight_, &group->left[static_cast<std::size_t>(slot)]);  // What came back had arrived.
  }
}

std::int64_t Offloader::due(int slot) const {
  std::int64_t sum = 0;
  for (const auto& group : groups_) {
    for (std::size_t i = 0; i < group->plan.tensors.size(); ++i) sum += bytes_of(*group, slot, i);
  }
  return sum;
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

// Pinned memory and bins have room for all rows. A copy of none is none, and its event follows what was before.
std::int64_t Offloader::bytes_of(const Group& group, int slot, std::size_t tensor) const {
  const OffloadTensor& planned = group.plan.tensors[tensor];
  if (planned.rows == 0) return planned.bytes;
  return planned.bytes / planned.rows * rows_in_use_(group.plan.layer, slot);
}

// The buffer that has been free for longest takes the place of the slot's own.
void Offloader::take_spare(Group& group, int slot, std::size_t tensor) {
  std::deque<int>& spares = spares_[group.plan.tensors[tensor].bytes];
  if (!rotates_ || spares.empty()) return;
  int& mine = group.copies[static_cast<std::size_t>(slot)][tensor];
  spares.push_back(std::exchange(mine, spares.front()));
  spares.pop_front();
}

void Offloader::copy_out(Group& group, int slot) {
  const Placed placed(device_, group.plan.layer, "offload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  Event& left = group.left[static_cast<std::size_t>(slot)];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    take_spare(group, slot, i);
    Pinned& to = copy_of(group, slot, i);
    if (to.returning != nullptr) d2h_->wait(*to.returning);
    const std::int64_t bytes = bytes_of(group, slot, i);
    if (bytes > 0) {
      d2h_->copy(to.memory.data(), bin(tensors[i], slot).memory, static_cast<std::size_t>(bytes),
                 CopyKind::device_to_host);
    }
    bin(tensors[i], slot).leaving = &left;
    moved.out += bytes;
  }
  d2h_->record(left);
  in_flight_.push_back(&left);
  if (!fault("offload-awaits-no-copy")) throttle();
  most_in_flight = std::max<std::int64_t>(most_in_flight, std::ssize(in_flight_));
}

// At most so many copies that compute has not waited for; the join that lets memory return inside of one graph.
void Offloader::throttle() {
  while (max_inflight_ && std::ssize(in_flight_) > *max_inflight_) {
    compute_.wait(*in_flight_.front());
    in_flight_.erase(in_flight_.begin());
  }
}

void Offloader::copy_in(Group& group, int slot) {
  const Placed placed(device_, group.plan.layer, "reload");
  const std::vector<OffloadTensor>& tensors = group.plan.tensors;
  const Event& returned = group.returned[static_cast<std::size_t>(slot)];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Pinned& from = copy_of(group, fault("reload-takes-another-slot") ? 0 : slot, i);
    Bin& to = bin(tensors[i], fault("offload-mirrors-only-the-way-out") ? slot % plan_.sets : slot);
    const Event* leaving = std::exchange(to.leaving, nullptr);
    // The last copy out of this bin: the tensor's own, or one that came behind it.
    if (leaving != nullptr) h2d_->wait(*leaving);
    const std::int64_t bytes = bytes_of(group, slot, i);
    if (bytes > 0) {
      h2d_->copy(to.memory, from.memory.data(), static_cast<std::size_t>(bytes), CopyKind::host_to_device);
    }
    from.returning = &returned;
    moved.in += bytes;
  }
  h2d_->record(returned);
}

// A step brings back all that it sent, in order behind what was sent, and compute waits for each before it reads it.
void Offloader::settle() {
  if (fault("offload-keeps-events-across-captures")) return;
  in_flight_.clear();
  ahead_.reset();
  for (Bin& bin : bins_) bin.leaving = nullptr;
  for (Pinned& pinned : pinned_) pinned.returning = nullptr;
}

// ---- Looking on -----------------------------------------------------------------------------------------------------

void Offloader::point_to_copies(std::vector<NamedTensor>& tensors, int slot) {
  if (plan_.empty()) return;
  d2h_->synchronize();
  compute_.synchronize();  // The copies of a graph are behind its launch.
  for (NamedTensor& named : tensors) {
    for (const auto& group : groups_) {
      for (std::size_t i = 0; i < group->plan.tensors.size(); ++i) {
        if (group->plan.tensors[i].name != named.name) continue;
        named.tensor.data = copy_of(*group, slot, i).memory.data();
        named.tensor.on_host = true;
      }
    }
  }
}

void Offloader::count_launch(const Ledger& ledger) {
  if (plan_.empty()) return;
  for (const IssuedCall& entry : ledger.entries()) {
    const auto* copy = entry.as<CopyCall>();
    if (!copy) continue;
    if (entry.stream == d2h_->id()) moved.out += static_cast<std::int64_t>(copy->bytes);
    if (entry.stream == h2d_->id()) moved.in += static_cast<std::int64_t>(copy->bytes);
  }
}

}  // namespace lockstep
