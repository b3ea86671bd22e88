#include "engine/comm/store_communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "engine/comm/graph_calls.h"
#include "engine/device/backend_communicator.h"
#include "engine/device/call_order.h"
#include "engine/rendezvous/group_store.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

std::byte* part(void* memory, int rank, std::size_t bytes) {
  return static_cast<std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
}
const std::byte* part(const void* memory, int rank, std::size_t bytes) {
  return static_cast<const std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
}

// Makes a rank's calls in rounds of the store. `leave` moves bytes to the outbox, `take` from
// another rank's.
class Rounds {
 public:
  using Move = std::function<void(void* to, const void* from, std::size_t bytes)>;
  explicit Rounds(Store& store) : store_(store) {}

  void make(const CollectiveCall& call, void* to, const void* from, const Move& leave,
            const Move& take) {
    require(call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::all_to_all,
            "sums are the library's");
    call.kind == CollectiveKind::all_gather ? gather(call, to, from, leave, take)
                                            : exchange(call, to, from, leave, take);
  }

 private:
  int size() const { return store_.size(); }
  int rank() const { return store_.rank(); }

  void gather(const CollectiveCall& call, void* to, const void* from, const Move& leave,
              const Move& take) {
    in_rounds(
        call, 1,
        [&](std::byte* outbox, std::size_t first, std::size_t count) {
          leave(outbox, static_cast<const std::byte*>(from) + first, count);
        },
        [&](int peer, std::size_t first, std::size_t count) {
          take(part(to, peer, call.bytes) + first, store_.outbox_of(peer, count), count);
        });
  }

  void exchange(const CollectiveCall& call, void* to, const void* from, const Move& leave,
                const Move& take) {
    const std::size_t all = size();
    in_rounds(
        call, all,
        [&](std::byte* outbox, std::size_t first, std::size_t count) {
          for (int peer = 0; peer < size(); ++peer) {
            if (peer != rank())
              leave(part(outbox, peer, count), part(from, peer, call.bytes) + first, count);
          }
        },
        [&](int peer, std::size_t first, std::size_t count) {
          const std::byte* const theirs = store_.outbox_of(peer, all * count);
          take(part(to, peer, call.bytes) + first, part(theirs, rank(), count), count);
        });
  }

  // The outbox has `parts` parts, one after the other; the call takes as many rounds as they need.
  template <class Fill, class Take>
  void in_rounds(const CollectiveCall& call, std::size_t parts, Fill fill, Take take) {
    std::size_t first = 0;
    bool once_more = faulty("a-collective-ends-with-an-empty-round", false, true);
    do {
      const std::size_t count =
          std::min(Store::kOutbox / parts, static_cast<std::size_t>(call.bytes) - first);
      std::byte* outbox = store_.begin();
      if (count > 0) fill(outbox, first, count);
      store_.post(call, parts * count);
      store_.await_posts();
      for (int peer = 0; peer < size() && count > 0; ++peer) {
        if (peer != rank()) take(peer, first, count);
      }
      store_.end();
      first += count;
    } while (first < call.bytes || std::exchange(once_more, false));
  }

  Store& store_;
};

class StoreCommunicator final : public Communicator {
 public:
  StoreCommunicator(Device& device, Store& store)
      : device_(device),
        store_(store),
        rounds_(store),
        order_(device),
        order_in_graphs_(&order_),
        captured_(*this) {}
  StoreCommunicator(StoreCommunicator& all, std::unique_ptr<Store> own)
      : StoreCommunicator(all.device_, *own) {
    own_store_ = std::move(own);
    order_in_graphs_ = all.order_in_graphs_;
  }
  int rank() const override { return store_.rank(); }
  int size() const override { return store_.size(); }

  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    make(stream, CollectiveKind::all_gather, name, to, from, part(to, rank(), bytes), from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    require(bytes == 0 || to != from, "what is exchanged goes to other memory");
    make(stream, CollectiveKind::all_to_all, name, to, from, part(to, rank(), bytes),
         part(from, rank(), bytes), bytes);
  }

  // The host waits for a copy to memory that is not pinned, and what is sent is a copy.
  void send(const Stream& stream, const CollectiveName& name, const void* from, std::size_t bytes,
            int to) override {
    if (device_.recording() >= 0)
      return capture_transfer(stream, CollectiveKind::send, name, &captured_.sent, from, bytes, to);
    std::vector<std::byte> data(bytes);
    if (bytes > 0) stream.copy(data.data(), from, bytes, CopyKind::device_to_host);
    store_.send(to, call_of_transfer(name, bytes, stream.name()), data);
    device_.count(stream, collectives);
  }
  void receive(const Stream& stream, const CollectiveName& name, void* to, std::size_t bytes,
               int from) override {
    if (device_.recording() >= 0)
      return capture_transfer(stream, CollectiveKind::receive, name, to, nullptr, bytes, from);
    const Letter letter = receive_letter(call_of_transfer(name, bytes, stream.name()), from);
    if (bytes > 0) stream.copy(to, letter.data.data(), bytes, CopyKind::host_to_device);
  }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return std::make_unique<StoreCommunicator>(*this, std::make_unique<GroupStore>(store_, ranks));
  }

  // The hosts compare the calls of their graphs. The calls are made while the graph runs, before
  // `body` returns.
  void launch(const Stream& stream, const Ledger& graph,
              const std::function<void()>& body) override {
    order_.begin(stream);
    const CollectiveCall call = ledger_.append(CollectiveKind::launch, {}, 0, stream.name());
    require_same_calls(rank(), store_.all_gather_object(call, calls_text(graph)));
    body();
    order_.end(stream);
  }

  void barrier() override { all_gather_object(""); }
  std::vector<std::string> all_gather_object(const std::string& words) override {
    require(device_.recording() < 0, "ranks meet outside of captures and dry runs");
    return store_.all_gather_object(ledger_.append(CollectiveKind::barrier, {}, 0, ""), words);
  }

 private:
  // Makes a captured call when its graph runs.
  class Captured final : public BackendCommunicator {
   public:
    explicit Captured(StoreCommunicator& all) : all_(all) {}
    CollectiveName name;  // Name of the call that is being captured, and of its stream.
    std::string stream_name;
    std::byte sent = {};  // Stands for the copy of what is sent, which the letter keeps.

    void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
      capture(stream, CollectiveKind::all_gather, to, from, part(to, all_.rank(), bytes), from,
              bytes);
    }
    void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
      const std::byte* own = part(from, all_.rank(), bytes);
      capture(stream, CollectiveKind::all_to_all, to, from, part(to, all_.rank(), bytes), own,
              bytes);
    }
    void reduce_scatter(BackendStream*, float*, const float*, std::size_t) override {
      require(false, "sums are the library's");
    }
    void all_reduce(BackendStream*, float*, std::size_t) override {
      require(false, "sums are the library's");
    }
    void send(BackendStream* stream, const void* from, std::size_t bytes, int to) override {
      const CollectiveCall call = call_of_transfer(name, bytes, stream_name);
      all_.device_.backend().call(stream, to_text(CollectiveKind::send), [=, this] {
        unless_lost([&] {
          all_.store_.send(to, call, {static_cast<const std::byte*>(from), bytes});
        });
      });
    }
    void receive(BackendStream* stream, void* to, std::size_t bytes, int from) override {
      const CollectiveCall call = call_of_transfer(name, bytes, stream_name);
      all_.device_.backend().call(stream, to_text(CollectiveKind::receive), [=, this] {
        unless_lost([&] {
          const Letter letter = all_.receive_letter(call, from);
          if (bytes > 0) std::memcpy(to, letter.data.data(), bytes);
        });
      });
    }
    bool busy() override { return false; }
    std::string failure() override { return ""; }

   private:
    void capture(BackendStream* stream, CollectiveKind kind, void* to, const void* from,
                 void* own_to, const void* own_from, std::size_t bytes) {
      all_.device_.backend().call(stream, to_text(kind),
                                  [=, this, purpose = name, on = stream_name] {
                                    run(kind, purpose, on, to, from, bytes);
                                    if (!lost_ && bytes > 0) std::memmove(own_to, own_from, bytes);
                                  });
    }
    // A graph in which a rank was lost still runs to its end and frees its memory, but makes no
    // more calls.
    void run(CollectiveKind kind, const CollectiveName& purpose, const std::string& on, void* to,
             const void* from, std::size_t bytes) {
      const Rounds::Move move = [](void* there, const void* here, std::size_t count) {
        std::memcpy(there, here, count);
      };
      unless_lost([&] {
        all_.rounds_.make(all_.ledger_.append(kind, purpose, bytes, on), to, from, move, move);
      });
    }
    void unless_lost(const std::function<void()>& call) {
      if (lost_) return;
      lost_ = true;
      call();
      lost_ = false;
    }
    StoreCommunicator& all_;
    bool lost_ = false;
  };

  void make(const Stream& stream, CollectiveKind kind, const CollectiveName& name, void* to,
            const void* from, void* own_to, const void* own_from, std::size_t bytes) {
    const bool captured = device_.recording() >= 0;
    CallOrder& order = captured ? *order_in_graphs_ : order_;
    order.begin(stream);
    device_.count(stream, collectives);
    if (captured) {
      capture(stream, kind, name, to, from, bytes);
    } else {
      // The outbox is not pinned: the host waits for a copy to it, and a copy from it reads it when
      // it is submitted.
      rounds_.make(
          ledger_.append(kind, name, bytes, stream.name()), to, from,
          [&](void* there, const void* here, std::size_t count) {
            stream.copy(there, here, count, CopyKind::device_to_host);
          },
          [&](void* there, const void* here, std::size_t count) {
            stream.copy(there, here, count, CopyKind::host_to_device);
          });
      if (bytes > 0 && own_to != own_from)
        stream.copy(own_to, own_from, bytes, CopyKind::device_to_device);
    }
    order.end(stream);
  }

  void capture(const Stream& stream, CollectiveKind kind, const CollectiveName& name, void* to,
               const void* from, std::size_t bytes, int peer = -1) {
    require(!store_.local_barrier, "a graph holds no calls of several ranks of one process");
    captured_.name = name;
    captured_.stream_name = stream.name();
    stream.exchange({&captured_, kind, name, rank(), size(), peer}, to, from, bytes);
  }
  // The host waits for what it receives, so transfers have their turn among all calls of the graph:
  // eagerly, too, it comes to them in the order of the passes.
  void capture_transfer(const Stream& stream, CollectiveKind kind, const CollectiveName& name,
                        void* to, const void* from, std::size_t bytes, int peer) {
    order_in_graphs_->begin(stream);
    if (kind == CollectiveKind::send) device_.count(stream, collectives);
    capture(stream, kind, name, to, from, bytes, peer);
    order_in_graphs_->end(stream);
  }
  Letter receive_letter(const CollectiveCall& call, int from) {
    Letter letter = store_.receive(from, call);
    require_same_call(rank(), call, from, letter.call);
    if (letter.data.size() != call.bytes)
      throw BadFrame("rank " + std::to_string(from) + " sent " +
                     std::to_string(letter.data.size()) + " bytes as " + text(call));
    return letter;
  }

  std::unique_ptr<Store> own_store_;  // A group has one.
  Device& device_;
  Store& store_;
  CollectiveLedger ledger_;
  Rounds rounds_;
  CallOrder order_;
  // The host waits in each call of a graph. So that all hosts come to them in the same order, those
  // of all communicators of a process have one.
  CallOrder* order_in_graphs_;
  Captured captured_;
};

}  // namespace

std::unique_ptr<Communicator> make_store_communicator(Device& device, Store& store) {
  return std::make_unique<StoreCommunicator>(device, store);
}

}  // namespace lockstep
