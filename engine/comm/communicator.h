// What the ranks of a run exchange. Every rank makes the same calls in the same order; a call is ordered on the stream
// that it is given, and after the call before it, whatever stream that had: one communicator is one queue.
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

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // to[r] = rank r's from, for every rank r. `from` has `bytes`, `to` size() * bytes of device memory; `from` may be
  // to[rank()]. Both belong to the call until what follows on `stream`.
  virtual void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                          std::size_t bytes) = 0;
  // to[r] = rank r's from[rank()]: what a fold in the order of ranks needs. `from` and `to` have size() * bytes each
  // and do not overlap.
  virtual void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                          std::size_t bytes) = 0;

  // Sums of fp32 over the ranks, in an order that the library chooses: only where there is a library, or one rank.
  // to = the sum over r of rank r's from[rank()], all as above; then data = the sum of every rank's.
  virtual void reduce_scatter(const Stream&, const CollectiveName&, float*, const float*, std::size_t) {
    require(false, "sums are the library's");
  }
  virtual void all_reduce(const Stream&, const CollectiveName&, float*, std::size_t) {
    require(false, "sums are the library's");
  }

  // Device memory for what is exchanged: where this finds every rank's, if it can. Any memory does, but may be slower.
  // Every rank asks for as much, in the same order, and lets go in the same order before the communicator, once its
  // calls on it are done: it may be handed out again at once. A call is done when what others bring has come, too.
  virtual DeviceBuffer buffer(Device& device, std::size_t bytes) { return DeviceBuffer(device, bytes); }

  // Buffers of so many bytes in all, each rounded up to WindowMemory::kAlignment, are asked for next: else what finds
  // every rank's takes more memory. Every rank says the same.
  virtual void reserve(std::size_t) {}

  // Makes what `calls` calls of this, which may be one launch: all on one stream, and none touches what another brings.
  virtual void together(const std::function<void()>& calls) { calls(); }
  // `body` launches a graph on `stream` that was captured as `graph`: one call, behind those before it. Every rank
  // makes it, and its graph holds the same calls.
  virtual void launch(const Stream&, const Ledger&, const std::function<void()>& body) { body(); }

  // Returns when every rank has called it: what a host waited for before, all hosts have waited for after. It orders
  // nothing else on the device.
  virtual void meet() = 0;
  // What every rank says, in the order of ranks: for judges and reports; never data of the training, and no order.
  virtual std::vector<std::string> tell(const std::string& words) = 0;

  // Calls, for the non-vacuity rules; those in captured graphs once a launch, those of dry runs never. Meetings are
  // not counted.
  std::int64_t collectives = 0;
};

// Of a run with one rank: copies, ordered by their streams alone; also in captures and dry runs, which no other takes.
std::unique_ptr<Communicator> make_lone_communicator(Device& device);

}  // namespace lockstep
