// Transfers from one process to another by copy engines: the receiver's stream copies out of the
// sender's memory, which CUDA maps into its process (CUDA IPC). A flag in the memory of each
// process tells its streams what the other has done, by memory operations of streams
// (cuStreamWaitValue32). A stream that waits so holds no multiprocessor; a kernel of NCCL's holds
// some from the time that its stream comes to it until the other rank's has come too.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "engine/cuda/call_events.h"
#include "engine/device/backend_communicator.h"

namespace lockstep {

// Transfers from one of two ranks to the other, and nothing else.
class PeerCopies final : public BackendCommunicator {
 public:
  PeerCopies() = default;
  PeerCopies(const PeerCopies&) = delete;
  ~PeerCopies() override;  // Waits for nothing.

  // Empty where copy engines are off, or the driver lacks what it takes.
  Words introduction() override;
  bool meet(const Words& introduction) override;

  // Empty if no other process can map that memory, and there is no send() then.
  Words offer(const void* from) override;
  void send(BackendStream* stream, const void* from, std::size_t bytes, int to) override;
  void await_read(BackendStream* stream) override { await(stream); }

  // In the order of the offers.
  void accept(const Words& offer) override;
  void receive(BackendStream* stream, void* to, std::size_t bytes, int from) override;

  void unmap() noexcept override;
  bool busy() override { return last_.busy(); }
  std::string failure() override { return ""; }

  // These throw DeviceError.
  void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) override;
  void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) override;
  void reduce_scatter(BackendStream* stream, float* to, const float* from,
                      std::size_t bytes) override;
  void all_reduce(BackendStream* stream, float* data, std::size_t bytes) override;

 private:
  void await(BackendStream* stream) const;
  void tell(BackendStream* stream) const;

  std::uint32_t* own_ = nullptr;    // What the other has done: how often it has written, or read.
  std::uint32_t* other_ = nullptr;  // The same for the other, in its memory.
  std::uint32_t count_ = 0;         // Transfers so far.
  const void* accepted_ = nullptr;  // For the next receive().
  std::map<std::string, void*> mapped_;  // By the bytes of their handles.
  LastCall last_;
};

}  // namespace lockstep
