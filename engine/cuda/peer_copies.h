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
#include <vector>

namespace lockstep {

class PeerCopies {
 public:
  using Words = std::vector<std::byte>;  // What one process tells the other.

  PeerCopies() = default;
  PeerCopies(const PeerCopies&) = delete;
  ~PeerCopies();  // Waits for nothing.

  // For the other's meet(). Empty where the driver lacks what it takes.
  Words introduction();
  // Returns whether this process reaches the memory of the one that introduced itself.
  bool meet(const Words& introduction);

  // The sender. offer() tells the other's accept() where `from` is; it is empty if no other process
  // can map that memory, and there is no send() then.
  static Words offer(const void* from);
  void send(cudaStream_t stream);
  // The stream waits until the receiver has read all that was sent.
  void await_read(cudaStream_t stream) const { await(stream); }

  // The receiver, in the order of the offers.
  void accept(const Words& offer);
  void receive(cudaStream_t stream, void* to, std::size_t bytes);

  // Unmaps the other's memory, once nothing more is sent or received.
  void close() noexcept;

 private:
  void await(cudaStream_t stream) const;
  void tell(cudaStream_t stream) const;

  std::uint32_t* own_ = nullptr;    // What the other has done: how often it has written, or read.
  std::uint32_t* other_ = nullptr;  // The same for the other, in its memory.
  std::uint32_t count_ = 0;         // Transfers so far.
  const void* accepted_ = nullptr;  // For the next receive().
  std::map<std::string, void*> mapped_;  // By the bytes of their handles.
};

}  // namespace lockstep
