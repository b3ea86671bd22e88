#include "engine/cuda/peer_copies.h"

#include <cstring>
#include <source_location>

#include "engine/cuda/call.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/machine.h"
#include "engine/cuda/nccl_library.h"

namespace lockstep {
namespace {

using Words = PeerCopies::Words;

[[noreturn]] void refuse() {
  cuda_raise("cudaErrorNotSupported", "a collective by copies", std::source_location::current());
}

void driver_call(CUresult result, const char* name) {
  if (result == CUDA_SUCCESS) return;
  cuda_raise(("CUDA driver error " + std::to_string(result)).c_str(), name,
             std::source_location::current());
}
CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// The next launch must not report an error that is expected here.
bool succeeds(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error == cudaSuccess;
}

// A place in an allocation. The words that tell it name the machine too, since the handle says
// nothing on another.
struct Place {
  cudaIpcMemHandle_t allocation;
  std::uint64_t offset;
};
Words words_of(const Place& place) {
  const std::string& machine = this_machine();
  Words words(sizeof place + machine.size());
  std::memcpy(words.data(), &place, sizeof place);
  std::memcpy(words.data() + sizeof place, machine.data(), machine.size());
  return words;
}
bool is_here(const Words& words, Place& place) {
  const std::string& machine = this_machine();
  if (words.size() != sizeof place + machine.size()) return false;
  std::memcpy(&place, words.data(), sizeof place);
  return std::memcmp(words.data() + sizeof place, machine.data(), machine.size()) == 0;
}

}  // namespace

PeerCopies::~PeerCopies() {
  unmap();
  if (own_ != nullptr) static_cast<void>(cudaFree(own_));
}

Words PeerCopies::introduction() {
  const CudaDriver& driver = cuda_driver();
  if (!nccl_library().copy_engines_off.empty() || !driver.wait_value || !driver.write_value ||
      !driver.address_range || this_machine().empty())
    return {};
  if (own_ == nullptr) {
    void* flag = nullptr;
    cuda_call(cudaMalloc(&flag, sizeof *own_), "cudaMalloc");
    own_ = static_cast<std::uint32_t*>(flag);
  }
  cudaStream_t stream = nullptr;
  cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const cudaError_t filled = cudaMemsetAsync(own_, 0, sizeof *own_, stream);
  const cudaError_t done = cudaStreamSynchronize(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  cuda_call(filled, "cudaMemsetAsync");
  cuda_call(done, "cudaStreamSynchronize");
  return offer(own_);
}

bool PeerCopies::meet(const Words& introduction) {
  Place place{};
  void* flag = nullptr;
  if (!is_here(introduction, place) ||
      !succeeds(cudaIpcOpenMemHandle(&flag, place.allocation, cudaIpcMemLazyEnablePeerAccess)))
    return false;
  other_ = static_cast<std::uint32_t*>(flag);  // An allocation by itself.
  return true;
}

Words PeerCopies::offer(const void* from) {
  CUdeviceptr base = 0;
  Place place{};
  if (cuda_driver().address_range(&base, nullptr, address(from)) != CUDA_SUCCESS ||
      !succeeds(cudaIpcGetMemHandle(&place.allocation, reinterpret_cast<void*>(base))))
    return {};
  place.offset = address(from) - base;
  return words_of(place);
}

void PeerCopies::send(BackendStream* stream, const void*, std::size_t, int) {
  ++count_;
  tell(stream);
  last_.record(stream);
}

void PeerCopies::accept(const Words& offer) {
  Place place{};
  if (!is_here(offer, place))
    cuda_raise("not of this machine", "an offer of memory", std::source_location::current());
  const std::string key(place.allocation.reserved, sizeof place.allocation.reserved);
  void*& base = mapped_[key];
  if (base == nullptr) {
    cuda_call(cudaIpcOpenMemHandle(&base, place.allocation, cudaIpcMemLazyEnablePeerAccess),
              "cudaIpcOpenMemHandle; LOCKSTEP_COPY_ENGINES=0 takes kernels");
  }
  accepted_ = static_cast<const std::byte*>(base) + place.offset;
}

void PeerCopies::receive(BackendStream* stream, void* to, std::size_t bytes, int) {
  ++count_;
  await(stream);
  cuda_call(cudaMemcpyAsync(to, accepted_, bytes, cudaMemcpyDeviceToDevice, cuda(stream)),
            "cudaMemcpyAsync");
  tell(stream);
  last_.record(stream);
}

void PeerCopies::await(BackendStream* stream) const {
  driver_call(
      cuda_driver().wait_value(cuda(stream), address(own_), count_, CU_STREAM_WAIT_VALUE_GEQ),
      "cuStreamWaitValue32");
}

// Behind all that was put on the stream before: the write comes with a fence.
void PeerCopies::tell(BackendStream* stream) const {
  driver_call(cuda_driver().write_value(cuda(stream), address(other_), count_,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue32");
}

void PeerCopies::unmap() noexcept {
  for (const auto& [handle, base] : mapped_) static_cast<void>(cudaIpcCloseMemHandle(base));
  mapped_.clear();
  if (other_ != nullptr) static_cast<void>(cudaIpcCloseMemHandle(other_));
  other_ = nullptr;
}

void PeerCopies::all_gather(BackendStream*, void*, const void*, std::size_t) { refuse(); }
void PeerCopies::all_to_all(BackendStream*, void*, const void*, std::size_t) { refuse(); }
void PeerCopies::reduce_scatter(BackendStream*, float*, const float*, std::size_t) { refuse(); }
void PeerCopies::all_reduce(BackendStream*, float*, std::size_t) { refuse(); }

}  // namespace lockstep
