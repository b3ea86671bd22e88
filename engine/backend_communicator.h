// What a library exchanges between devices, one of each process. Calls are queued on streams and return at once; the
// host side of them, and what becomes of a rank that is lost, are engine/nccl_communicator.h's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct BackendStream;

// By rank 0; all join with it.
using CommunicatorId = std::vector<std::byte>;

class BackendCommunicator {
 public:
  virtual ~BackendCommunicator() = default;  // Waits for nothing: what is under way is given up.
  virtual void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) = 0;
  // These two from any thread that has entered the device.
  virtual bool busy() = 0;            // The last call is not done.
  virtual std::string failure() = 0;  // What the library says went wrong meanwhile, "" if nothing.
};

}  // namespace lockstep
