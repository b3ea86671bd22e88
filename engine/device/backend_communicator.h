// Collectives that a library runs between devices, one of each process. Calls are queued on streams
// and return at once; the host side of them, and what becomes of a rank that is lost, are
// engine/comm/nccl_communicator.h's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct BackendStream;

// Created by rank 0; all ranks join with it.
using CommunicatorId = std::vector<std::byte>;

class BackendCommunicator {
 public:
  virtual ~BackendCommunicator() = default;  // Waits for nothing: what is under way is given up.
  virtual void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) = 0;
  // Sums of fp32, in the order that the library has for these sizes; of `bytes` each rank gets, or
  // all have.
  virtual void reduce_scatter(BackendStream* stream, float* to, const float* from,
                              std::size_t bytes) = 0;
  virtual void all_reduce(BackendStream* stream, float* data, std::size_t bytes) = 0;
  // Point to point: done when the other rank has made the other of the two.
  virtual void send(BackendStream*, const void*, std::size_t, int) {}
  virtual void receive(BackendStream*, void*, std::size_t, int) {}

  // Two ranks on one machine may do without kernels: the receiver copies from the sender's memory.
  // Each gives the other what introduction() returns; if meet() returns true on both, the sender
  // makes an offer() before each send(), and the receiver accepts it before its receive(). An empty
  // offer says that this transfer is made otherwise. Such a send() is done once the receiver may
  // read; await_read() has a stream wait until all that was sent is read. Behind unmap() on both
  // ranks, which comes when nothing is sent any more, memory from which was sent may be freed.
  using Words = std::vector<std::byte>;
  virtual Words introduction() { return {}; }
  virtual bool meet(const Words&) { return false; }
  virtual Words offer(const void*) { return {}; }
  virtual void accept(const Words&) {}
  virtual void await_read(BackendStream*) {}
  virtual void unmap() noexcept {}

  // Calls between these two are one launch, on one stream. It is queued by the second.
  virtual void begin_group() {}
  virtual void end_group() {}
  // A graph that holds calls was launched on the stream: from any capture of this communicator's
  // calls.
  virtual void launched(BackendStream*) {}

  // Seconds on the device of the calls that were made while `measure` was on, from where a stream
  // came to each to its end: waiting for other ranks is in them. For measurements; taking waits for
  // the calls.
  struct Spent {
    double gathers = 0, others = 0;
  };
  virtual void measure(bool) {}
  virtual Spent take_spent() { return {}; }

  // Memory that lies where the library finds every rank's, so that it may do without kernels for
  // what is exchanged in it. Ranks that say the same here, and not "", can have such memory of one
  // another; these allocate and release the same in the same order, and come back when all have.
  // Other memory does as well for any call.
  virtual std::string reach() const { return ""; }
  // Whether one piece of this size can be allocated; otherwise do not allocate it.
  virtual bool has_room(std::size_t) const { return true; }
  virtual void reserve(std::size_t) {}  // Announces so many bytes, allocated next in parts.
  virtual void* allocate(std::size_t) { return nullptr; }
  virtual void release(void*) noexcept {}

  // This process will have other runs, so that the communicator may be worth keeping for them when
  // this run has ended well (Backend::spare_communicators).
  virtual void keep() {}

  // These two from any thread that has entered the device.
  virtual bool busy() = 0;            // The last call is not done.
  virtual std::string failure() = 0;  // The library's asynchronous error, "" if none.
};

}  // namespace lockstep
