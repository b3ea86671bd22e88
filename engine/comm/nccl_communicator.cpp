#include "engine/comm/nccl_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/comm/communicator_ids.h"
#include "engine/comm/graph_calls.h"
#include "engine/device/backend_communicator.h"
#include "engine/device/call_order.h"
#include "engine/rendezvous/group_store.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHang = 4;                      // Exit status.
constexpr std::chrono::seconds kPatience{2};  // With a rank that failed by itself.
constexpr const char* kMemory = "memory";  // The purpose of calls that allocate registered memory.

// Watches that calls end: calls on the device, and calls of the library that block the host, as
// joining does. A blocked host cannot report, so this thread reports and ends the process.
class Watchdog {
 public:
  Watchdog(Backend& backend, const Store& store)
      : backend_(backend), store_(store), thread_([this](std::stop_token stop) { watch(stop); }) {}

  // Until the object dies, the host is in a call of the library.
  class Call {
   public:
    Call(Watchdog& dog, const CollectiveCall& call) : dog_(dog) { dog_.calling(&call); }
    ~Call() { dog_.calling(nullptr); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Watchdog& dog_;
  };

  // Watches the calls of `ranks` as well, until it is told to forget.
  void look_at(BackendCommunicator* ranks) {
    const std::lock_guard lock(mutex_);
    ranks_.push_back(ranks);
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    ranks_.clear();
  }

 private:
  void calling(const CollectiveCall* call) {
    const std::lock_guard lock(mutex_);
    in_call_ = call != nullptr;
    if (call != nullptr) last_ = *call;
    since_ = Clock::now();
  }
  void watch(const std::stop_token& stop) {
    backend_.enter_thread();
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::lock_guard lock(mutex_);
      bool busy = false;
      for (BackendCommunicator* ranks : ranks_) {
        const std::string failure = in_call_ ? "" : ranks->failure();
        if (!failure.empty()) end(failure);
        busy = busy || ranks->busy();
      }
      if (!in_call_ && !busy)
        since_ = Clock::now();
      else
        end_if_one_has_left();
      if (Clock::now() - since_ > store_.deadline())
        end("a collective is not done within the deadline");
    }
  }
  // Calls that wait for a rank which is no longer there are never done. One that failed by itself
  // may have put its part on the device before.
  void end_if_one_has_left() const {
    const int lost = store_.one_that_is(Store::lost), failed = store_.one_that_is(Store::failed);
    if (lost >= 0) end("rank " + std::to_string(lost) + " has left");
    if (failed >= 0 && Clock::now() - since_ > kPatience)
      end("rank " + std::to_string(failed) + " has left");
  }
  [[noreturn]] void end(const std::string& why) const {
    std::string said = "lockstep: rank " + std::to_string(store_.rank()) + ": " + why + ": " +
                       store_.report(last_);
    if (last_.purpose == std::string_view(kMemory))
      said += "; LOCKSTEP_COPY_ENGINES=0 does without such memory";
    said += "\n";
    std::fputs(said.c_str(), stderr);
    std::fflush(stderr);
    ::_exit(kHang);  // Nothing that the device holds can be trusted; the library's kernels end with
                     // the process.
  }

  Backend& backend_;
  const Store& store_;
  std::mutex mutex_;
  std::vector<BackendCommunicator*> ranks_;
  bool in_call_ = false;
  CollectiveCall last_;
  Clock::time_point since_ = Clock::now();
  std::jthread thread_;
};

bool keeps_communicators = false;  // In this process.

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Device& device, Store& store)
      : device_(device),
        store_(store),
        watchdog_(device.backend(), store),
        ranks_(join()),
        order_(device) {
    watchdog_.look_at(ranks_.get());
  }
  NcclCommunicator(Device& device, std::unique_ptr<Store> own) : NcclCommunicator(device, *own) {
    own_store_ = std::move(own);
  }
  // A rank that leaves frees memory that others may still read, so all leave together, or their
  // work is lost. Kernels of the library can be aborted; waits of copy engines cannot, and then the
  // watchdog ends the process.
  ~NcclCommunicator() override {
    try {
      const bool fails = std::uncaught_exceptions() > 0;
      const auto busy = [this] {
        return ranks_->busy() || std::ranges::any_of(ways_, [](const auto& way) {
                 const Way& one = way.second;
                 return one.copies->busy() || (one.library && (*one.library)->busy());
               });
      };
      while ((!fails || has_shared_) && busy())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!fails) barrier();
      if (!fails && keeps_communicators) {
        ranks_->keep();
        for (const auto& [key, way] : ways_) {
          if (way.library) (*way.library)->keep();
        }
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "lockstep: rank %d, at the end: %s\n", rank(), error.what());
    }
    watchdog_.forget();
  }
  int rank() const override { return store_.rank(); }
  int size() const override { return store_.size(); }

  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    make(stream, CollectiveKind::all_gather, name, to, from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    require(bytes == 0 || to != from, "what is exchanged goes to other memory");
    make(stream, CollectiveKind::all_to_all, name, to, from, bytes);
  }
  void reduce_scatter(const Stream& stream, const CollectiveName& name, float* to,
                      const float* from, std::size_t bytes) override {
    require(bytes == 0 || to != from, "what is added up goes to other memory");
    make(stream, CollectiveKind::reduce_scatter, name, to, from, bytes);
  }
  void all_reduce(const Stream& stream, const CollectiveName& name, float* data,
                  std::size_t bytes) override {
    make(stream, CollectiveKind::all_reduce, name, data, data, bytes);
  }
  // The hosts agree first, because the library returns only when all have asked for equal sizes.
  DeviceBuffer buffer(Device& device, std::size_t bytes) override {
    const CollectiveCall& call = ledger_.append(CollectiveKind::barrier, {kMemory}, bytes, "");
    if (!shares(call)) return DeviceBuffer(device, bytes);
    const Watchdog::Call calling(watchdog_, call);
    return DeviceBuffer(device, bytes, ranks_.get());
  }
  void reserve(std::size_t bytes) override {
    const CollectiveCall& call = ledger_.append(CollectiveKind::barrier, {kMemory}, bytes, "");
    if (!shares(call)) return;
    const Watchdog::Call calling(watchdog_, call);
    ranks_->reserve(bytes);
  }
  // All calls are compared at once after the last one, and then made.
  void grouped(const std::function<void()>& calls) override {
    require(!grouping_, "calls that are made as one hold no others");
    grouping_ = true;
    waiting_.clear();
    try {
      calls();
    } catch (...) {
      grouping_ = false;
      throw;
    }
    grouping_ = false;
    if (!waiting_.empty()) make_waiting();
  }
  // The hosts compare the calls of their graphs, which the graphs make when they run.
  void launch(const Stream& stream, const Ledger& graph,
              const std::function<void()>& body) override {
    order_.begin(stream);
    const CollectiveCall& call = ledger_.append(CollectiveKind::launch, {}, 0, stream.name());
    require_same_calls(rank(), store_.all_gather_object(call, calls_text(graph)));
    const Watchdog::Call calling(watchdog_, call);
    body();
    stream.launched(*ranks_.get());
    order_.end(stream);
  }
  BackendCommunicator& library() { return *ranks_.get(); }

  // A way gets a communicator of the library only where copies cannot serve it, which its two ranks
  // agree on first: the library takes some tenths of a second for each. Both lists of ways are in
  // the order of `ways` on all ranks, and a rank waits only for one that is at an earlier way or at
  // the same, so that no ranks wait in a circle. The host waits for the stream in any case: what a
  // run counts does not depend on the machine.
  void connect(const std::vector<TransferWay>& ways) override {
    const Stream stream(device_, "connect stages");
    const DeviceBuffer byte(device_, 1);
    stream.fill(byte.data(), 0, 1);
    for (const TransferWay& way : ways) {
      if (way.from == rank() || way.to == rank()) meet(way);
    }
    for (const TransferWay& way : ways) {
      if (way.from != rank() && way.to != rank()) continue;
      if (way.needs_library || !way_of(way).has_copies) join(way, stream, byte.data());
    }
    stream.synchronize();
  }
  void disconnect() override {
    for (auto& [key, way] : ways_) way.copies->unmap();
    barrier();
  }
  ConnectedWays connected_ways() const {
    ConnectedWays count{.all = static_cast<int>(ways_.size())};
    for (const auto& [key, way] : ways_) count.over_library += way.library.has_value();
    return count;
  }
  // A byte for each rank, by each kind of call that moves rows of experts.
  void connect_exchanges() override {
    const Stream stream(device_, "connect exchanges");
    const std::size_t all = size();
    const DeviceBuffer from(device_, all), to(device_, all);
    stream.fill(from.data(), 0, all);
    const CollectiveName name{"connect"};
    const CollectiveCall& call = ledger_.append(CollectiveKind::barrier, name, 0, stream.name());
    store_.all_gather_object(call, "");
    const Watchdog::Call calling(watchdog_, call);
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::all_to_all})
      stream.exchange({ranks_.get(), kind, name, rank(), size()}, to.data(), from.data(), 1);
    stream.synchronize();
  }
  // The hosts agree through a letter, for which the sender does not wait; of captured transfers
  // when their graph is launched.
  void send(const Stream& stream, const CollectiveName& name, const void* from, std::size_t bytes,
            int to) override {
    Way& way = ways_.at(key_of(rank(), to, name.purpose));
    const CollectiveCall call = call_of_transfer(name, bytes, stream.name());
    const bool captured = device_.recording() >= 0;
    std::optional<Watchdog::Call> calling;
    BackendCommunicator::Words offer;
    if (!captured && way.has_copies) offer = way.copies->offer(from);
    BackendCommunicator* const ranks = offer.empty() ? over_library(way, call) : way.copies.get();
    if (!captured) {
      store_.send(to, call, offer);
      calling.emplace(watchdog_, call);
    }
    stream.exchange({ranks, CollectiveKind::send, name, 0, 2, 1}, nullptr, from, bytes);
    device_.count(stream, collectives);
    if (captured) return;
    stream.record(way.sent);
    way.was_used = true;
  }
  void receive(const Stream& stream, const CollectiveName& name, void* to, std::size_t bytes,
               int from) override {
    const CollectiveCall call = call_of_transfer(name, bytes, stream.name());
    Way& way = ways_.at(key_of(from, rank(), name.purpose));
    const bool captured = device_.recording() >= 0;
    std::optional<Watchdog::Call> calling;
    Letter letter;
    if (!captured) {
      letter = store_.receive(from, call);
      require_same_call(rank(), call, from, letter.call);
      if (!letter.data.empty()) way.copies->accept(letter.data);
      calling.emplace(watchdog_, call);
    }
    BackendCommunicator* const ranks =
        letter.data.empty() ? over_library(way, call) : way.copies.get();
    stream.exchange({ranks, CollectiveKind::receive, name, 1, 2, 0}, to, nullptr, bytes);
  }
  void await_sent(const Stream& stream, int to) override {
    for (auto& [key, way] : ways_) {
      if (std::get<0>(key) != rank() || std::get<1>(key) != to || !way.was_used) continue;
      stream.wait(way.sent);
      if (way.has_copies) stream.await_read(*way.copies.get());
    }
  }
  void launched_transfers(const Stream& stream) override {
    for (auto& [key, way] : ways_) {
      if (way.library) stream.launched(*way.library->get());
    }
  }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return std::make_unique<NcclCommunicator>(device_, std::make_unique<GroupStore>(store_, ranks));
  }
  void barrier() override { all_gather_object(""); }
  std::vector<std::string> all_gather_object(const std::string& words) override {
    require(device_.recording() < 0, "ranks meet outside of captures and dry runs");
    return store_.all_gather_object(ledger_.append(CollectiveKind::barrier, {}, 0, ""), words);
  }

 private:
  struct Way {
    Way(Device& device, OwnedCommunicator joined)
        : copies(std::move(joined)), sent(device, "sent to a stage") {}
    OwnedCommunicator
        copies;               // Has no library. Where it is not used, the other may have it mapped.
    bool has_copies = false;  // The receiver may copy from the sender's memory.
    std::optional<OwnedCommunicator> library;
    Event sent;
    bool was_used = false;
  };
  using WayKey = std::tuple<int, int, std::string>;
  static WayKey key_of(int from, int to, const char* purpose) { return {from, to, purpose}; }
  Way& way_of(const TransferWay& named) {
    return ways_.at(key_of(named.from, named.to, named.purpose));
  }
  // Throws if the memory of a transfer turns out to be such that no other process can map it, and
  // nobody said that it might.
  static BackendCommunicator* over_library(Way& way, const CollectiveCall& call) {
    if (way.library) return way.library->get();
    throw DeviceError("cudaErrorNotSupported", text(call) +
                                                   ", of memory that the receiver cannot map; "
                                                   "LOCKSTEP_COPY_ENGINES=0 does without");
  }

  // Finds out whether the receiver may copy from the sender's memory: each tries the memory of the
  // other, and the sender decides.
  void meet(const TransferWay& named) {
    const bool sends = named.from == rank();
    const int peer = sends ? named.to : named.from;
    const CollectiveCall call = call_of_transfer({named.purpose}, 0, "");
    const auto [made, fresh] =
        ways_.try_emplace(key_of(named.from, named.to, named.purpose), device_,
                          device_.join(CommunicatorId{}, sends ? 0 : 1, 2));
    require(fresh, "each way is named once");
    Way& way = made->second;
    watchdog_.look_at(way.copies.get());
    const auto told = [&] { return letter_of(peer, call); };
    const BackendCommunicator::Words own = way.copies->introduction();
    if (sends) store_.send(peer, call, own);
    way.has_copies = way.copies->meet(told());
    store_.send(peer, call, way.has_copies ? own : BackendCommunicator::Words{});
    if (!sends) way.has_copies = !told().empty();
    has_shared_ = has_shared_ || way.has_copies;
  }

  std::vector<std::byte> letter_of(int peer, const CollectiveCall& call) {
    Letter letter = store_.receive(peer, call);
    require_same_call(rank(), call, peer, letter.call);
    return std::move(letter.data);
  }

  // The receiver offers what it can join again, and the sender chooses, or makes a new one.
  CommunicatorId id_of_way(const TransferWay& named, const CollectiveCall& call) {
    const bool sends = named.from == rank();
    const OfferedIds own{device_.backend().spare_communicators(sends ? 0 : 1, 2)};
    if (!sends) {
      const std::string words = words_of(own);
      store_.send(named.from, call, std::as_bytes(std::span(words)));
      return letter_of(named.from, call);
    }
    std::string words;
    for (const std::byte byte : letter_of(named.to, call)) words += static_cast<char>(byte);
    const std::array offered{own, read_offered_ids(words)};
    const std::optional<CommunicatorId> spare = agreed_id(offered);
    const CommunicatorId id = spare ? *spare : device_.backend().new_communicator_id();
    store_.send(named.to, call, id);
    return id;
  }

  // Joins a communicator for the way: calls of one communicator wait for each other, on whatever
  // streams, and a send waits for its receiver. NCCL connects two ranks in their first transfer, in
  // which each host waits for the other's call. In a step these calls come in different orders and
  // would wait in a circle, so a byte goes each way here.
  void join(const TransferWay& named, const Stream& stream, void* byte) {
    const bool sends = named.from == rank();
    const CollectiveCall call = call_of_transfer({named.purpose}, 0, "");
    const CommunicatorId id = id_of_way(named, call);
    const Watchdog::Call calling(watchdog_, call);
    Way& way = way_of(named);
    way.library.emplace(device_.join(id, sends ? 0 : 1, 2));
    BackendCommunicator* const ranks = way.library->get();
    watchdog_.look_at(ranks);
    const CollectiveKind kind = sends ? CollectiveKind::send : CollectiveKind::receive;
    stream.exchange({ranks, kind, {named.purpose}, sends ? 0 : 1, 2, sends ? 1 : 0},
                    sends ? nullptr : byte, byte, 1);
  }

  // A call that is not made yet.
  struct Waiting {
    const Stream* stream;
    CollectiveCall call;
    Exchange exchange;
    void* to;
    const void* from;
    std::size_t bytes;
  };

  // Whether registered memory is used: only if every rank reaches every other. If one has no room,
  // none allocates.
  bool shares(const CollectiveCall& call) {
    require(device_.recording() < 0,
            "memory for exchanges is asked for outside of captures and dry runs");
    const std::string reach = ranks_->reach();
    const bool has_room = reach.empty() || ranks_->has_room(call.bytes);
    const std::vector<std::string> told =
        store_.all_gather_object(call, (has_room ? "+" : "-") + reach);
    const auto reach_of = [&](std::size_t peer) { return told[peer].substr(1); };
    for (std::size_t peer = 0; peer < told.size(); ++peer) {
      if (told[peer].empty())
        throw BadFrame("rank " + std::to_string(peer) + " does not say what it reaches");
    }
    for (std::size_t peer = 0; peer < told.size(); ++peer) {
      if (reach_of(peer).empty() || reach_of(peer) != reach_of(0) || call.bytes == 0) return false;
    }
    for (std::size_t peer = 0; peer < told.size(); ++peer) {
      if (told[peer][0] == '+') continue;
      throw DeviceError("cudaErrorMemoryAllocation",
                        text(call) + ", which rank " + std::to_string(peer) + " does not have");
    }
    return has_shared_ = true;
  }

  // The ranks offer the communicators that they can join again. Rank 0 offers a new one where it
  // has none, and where they have none in common.
  OwnedCommunicator join() {
    CollectiveCall call;
    const auto gather = [&](const OfferedIds& own) {
      call = ledger_.append(CollectiveKind::barrier, {}, 0, "");
      std::vector<OfferedIds> of_ranks;
      for (const std::string& words : store_.all_gather_object(call, words_of(own)))
        of_ranks.push_back(read_offered_ids(words));
      return agreed_id(of_ranks);
    };
    const auto new_offer = [&] {
      return rank() == 0 ? OfferedIds{{device_.backend().new_communicator_id()}, true}
                         : OfferedIds{};
    };
    const OfferedIds spares{device_.backend().spare_communicators(rank(), size())};
    std::optional<CommunicatorId> id = gather(spares.ids.empty() ? new_offer() : spares);
    if (!id) id = gather(new_offer());
    if (!id) throw BadFrame("rank 0 offers no communicator");
    const Watchdog::Call calling(watchdog_, call);
    return device_.join(*id, rank(), size());
  }

  void make(const Stream& stream, CollectiveKind kind, const CollectiveName& name, void* to,
            const void* from, std::size_t bytes) {
    order_.begin(stream);
    device_.count(stream, collectives);
    const bool captured = device_.recording() >= 0;  // A captured call is compared at each launch.
    const CollectiveCall call =
        captured ? CollectiveCall{} : ledger_.append(kind, name, bytes, stream.name());
    require(waiting_.empty() || waiting_.back().stream == &stream,
            "what is made as one is on one stream");
    waiting_.push_back(
        {&stream, call, {ranks_.get(), kind, name, rank(), size()}, to, from, bytes});
    if (!grouping_) make_waiting();
  }

  // Requires that all hosts are about to make the same calls; otherwise none makes any.
  void compare(const std::vector<Waiting>& waiting) {
    const std::size_t count = waiting.size(), bytes = sizeof count + count * sizeof(CollectiveCall);
    require(bytes <= Store::kOutbox, "what is made as one is not that much");
    std::byte* const outbox = store_.begin();
    std::memcpy(outbox, &count, sizeof count);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(outbox + sizeof count + i * sizeof(CollectiveCall), &waiting[i].call,
                  sizeof(CollectiveCall));
    }
    store_.post(waiting.front().call, bytes);
    store_.await_posts();
    for (int peer = 0; peer < size(); ++peer) {
      const std::span<const std::byte> posted = store_.posted_by(peer);
      if (posted.size() < sizeof count || (posted.size() - sizeof count) % sizeof(CollectiveCall))
        throw BadFrame("rank " + std::to_string(peer) + " posted no list of calls");
      const std::byte* const theirs = posted.data();
      std::size_t others = 0;
      std::memcpy(&others, theirs, sizeof others);
      if (others != (posted.size() - sizeof count) / sizeof(CollectiveCall))
        throw BadFrame("rank " + std::to_string(peer) + " posted another number of calls");
      for (std::size_t i = 0; i < std::max(count, others); ++i) {
        CollectiveCall call;  // No call after the last.
        if (i < others) std::memcpy(&call, theirs + sizeof others + i * sizeof call, sizeof call);
        if (!is_well_formed(call))
          throw BadFrame("rank " + std::to_string(peer) + " posted no call");
        require_same_call(rank(), i < count ? waiting[i].call : CollectiveCall{}, peer, call);
      }
    }
    store_.end();
  }

  // Makes the waiting calls as one launch; a dry run only lists them.
  void make_waiting() {
    const std::vector<Waiting> waiting = std::exchange(waiting_, {});
    const bool group = waiting.size() > 1 && !device_.in_dry_run(),
               captured = device_.recording() >= 0;
    if (!captured) compare(waiting);
    {
      std::optional<Watchdog::Call> calling;
      if (!captured) calling.emplace(watchdog_, waiting.back().call);
      if (group) ranks_->begin_group();
      for (const Waiting& one : waiting) {
        if (one.bytes > 0) one.stream->exchange(one.exchange, one.to, one.from, one.bytes);
      }
      if (group) ranks_->end_group();
    }
    order_.end(*waiting.back().stream);
  }

  std::unique_ptr<Store> own_store_;  // A group has one.
  Device& device_;
  Store& store_;
  std::vector<Waiting> waiting_;
  bool grouping_ = false;
  bool has_shared_ = false;  // Some memory is another rank's to read, too.
  CollectiveLedger ledger_;
  Watchdog watchdog_;
  OwnedCommunicator ranks_;
  std::map<WayKey, Way> ways_;
  CallOrder order_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, Store& store) {
  return std::make_unique<NcclCommunicator>(device, store);
}

void keep_nccl_communicators() { keeps_communicators = true; }

BackendCommunicator* library_of(Communicator& communicator) {
  auto* const nccl = dynamic_cast<NcclCommunicator*>(&communicator);
  return nccl == nullptr ? nullptr : &nccl->library();
}

ConnectedWays connected_ways(const Communicator& communicator) {
  const auto* const nccl = dynamic_cast<const NcclCommunicator*>(&communicator);
  return nccl == nullptr ? ConnectedWays{} : nccl->connected_ways();
}

}  // namespace lockstep
