// Collectives between the ranks of a run. Every rank makes the same calls in the same order. A call
// is ordered on its stream, and after the previous call of the communicator even if that used
// another stream: a communicator is one queue. Beside them ranks send to one another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/rendezvous/collective_errors.h"
#include "kernels/core/require.h"

namespace lockstep {

// A way from one rank to another. What is sent for one purpose arrives in the order of sending.
struct TransferWay {
  int from, to;
  const char* purpose;
  int most = 0;  // That are sent and not yet received.
  // Some are captured, or sent from memory of buffer(): a library makes them if there is one.
  bool needs_library = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // to[r] = rank r's from, for every rank r. `from` has `bytes`, `to` size() * bytes of device
  // memory; `from` may be to[rank()]. Both belong to the call until the next work on `stream` runs.
  virtual void all_gather(const Stream& stream, const CollectiveName& name, void* to,
                          const void* from, std::size_t bytes) = 0;
  // to[r] = rank r's from[rank()], as a fold in the order of ranks needs it. `from` and `to` have
  // size() * bytes each and do not overlap.
  virtual void all_to_all(const Stream& stream, const CollectiveName& name, void* to,
                          const void* from, std::size_t bytes) = 0;

  // Sums of fp32 over the ranks, in an order that the library chooses; available only with a
  // library or with one rank. reduce_scatter: to = the sum over r of rank r's from[rank()].
  // all_reduce: data = the sum of every rank's data.
  virtual void reduce_scatter(const Stream&, const CollectiveName&, float*, const float*,
                              std::size_t) {
    require(false, "sums are the library's");
  }
  virtual void all_reduce(const Stream&, const CollectiveName&, float*, std::size_t) {
    require(false, "sums are the library's");
  }

  // Device memory for collectives, registered with the library if possible; other memory works but
  // may be slower. Every rank asks for equal sizes in the same order, and releases in the same
  // order, before the communicator and after its calls on the memory are done: the memory may be
  // handed out again at once. A call is done only when the data of the other ranks has arrived,
  // too.
  virtual DeviceBuffer buffer(Device& device, std::size_t bytes) {
    return DeviceBuffer(device, bytes);
  }

  // Announces that the next buffers take so many bytes in all, each rounded up to
  // WindowMemory::kAlignment. It saves registered memory. Every rank gives the same number.
  virtual void reserve(std::size_t) {}

  // Makes the calls that `calls` makes of this communicator as one group (ncclGroupStart/End). All
  // are on one stream, and none touches the result of another.
  virtual void grouped(const std::function<void()>& calls) { calls(); }
  // `body` launches a graph on `stream` that was captured as `graph`. The launch is one call,
  // ordered after those before it; every rank makes it, and the graphs of all ranks hold the same
  // calls.
  virtual void launch(const Stream&, const Ledger&, const std::function<void()>& body) { body(); }

  // Every rank calls it before the first step. A library that connects ranks in their first call
  // does so here, where each host waits for the others, and not in a step or a capture.
  virtual void connect_exchanges() {}
  // Point to point. All ranks name all ways of the run, in the same order, before the first is
  // used.
  virtual void connect(const std::vector<TransferWay>&) {}
  // Both ranks give the same name and `bytes`. No host waits for the receiver of what it sends.
  // `from` must not be written before the receiver has read it: what the receiver sends later may
  // say so, or await_sent().
  virtual void send(const Stream&, const CollectiveName&, const void*, std::size_t, int) {
    require(false, "one rank alone has nobody to send to");
  }
  // The host waits until `from` has called send(); in a capture nothing waits until its graph runs.
  virtual void receive(const Stream&, const CollectiveName&, void*, std::size_t, int) {
    require(false, "one rank alone has nobody to receive from");
  }
  // Work that is put on the stream from now on comes after `to` has read all that was sent to it.
  // Not while it may wait for something that this rank is still to send, and not in a capture: work
  // behind a send on its stream comes after it.
  virtual void await_sent(const Stream&, int) {}
  // A graph that holds transfers was launched on the stream. Launching is no call by itself, since
  // graphs of different ranks hold different transfers; require_matching_transfers() compares them.
  virtual void launched_transfers(const Stream&) {}
  // All ranks call it when nothing is sent any more. Behind it, memory from which was sent may be
  // freed.
  virtual void disconnect() {}
  // The communicator of some of the ranks, ascending, of which this one is one. Each rank asks for
  // its group at the same time; collectives of different groups have no common order.
  virtual std::unique_ptr<Communicator> group(const std::vector<int>&) {
    require(false, "one rank alone is no group of others");
    return nullptr;
  }

  // Returns when the host of every rank has called it. It orders no work on the device.
  virtual void barrier() = 0;
  // The words of every rank, in the order of ranks. For judges and reports only: never for training
  // data, and it orders no work on the device.
  virtual std::vector<std::string> all_gather_object(const std::string& words) = 0;

  // The number of calls, for the non-vacuity rules, and of sends. Calls in captured graphs count
  // once a launch, calls of dry runs never, and barriers are not counted.
  std::int64_t collectives = 0;
};

// The communicator of a run with one rank, as MPI_COMM_SELF: its calls are copies, ordered by their
// streams alone. It is the only one that also works in captures and dry runs of every device.
std::unique_ptr<Communicator> make_self_communicator(Device& device);

}  // namespace lockstep
