// The calls at NCCL, in which order, and what becomes of its failures: over a library and a runtime
// that only keep a list. No GPU is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/cuda/call.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/nccl.h"
#include "engine/cuda/nccl_library.h"
#include "engine/device/window_memory.h"

// ---- The runtime --------------------------------------------------------------------------------

namespace {

std::vector<std::string> said;  // By library and runtime.
std::string failing;            // The function of the library that fails.
bool capturing;
std::size_t free_bytes;
std::int64_t taken_bytes;
int current_gpu;
int error_of_library;  // The asynchronous one.
cudaError_t query_finds = cudaSuccess;

void say(const std::string& what) { said.push_back(what); }

}  // namespace

// In place of the runtime's functions, by their names for the linker.
extern "C" {
cudaError_t make_event(cudaEvent_t* event) __asm__("cudaEventCreate");
cudaError_t make_event_with(cudaEvent_t* event, unsigned flags) __asm__("cudaEventCreateWithFlags");
cudaError_t record(cudaEvent_t event, cudaStream_t stream) __asm__("cudaEventRecord");
cudaError_t destroy_event(cudaEvent_t event) __asm__("cudaEventDestroy");
cudaError_t query(cudaEvent_t event) __asm__("cudaEventQuery");
cudaError_t await_event(cudaEvent_t event) __asm__("cudaEventSynchronize");
cudaError_t elapsed(float* ms, cudaEvent_t begin, cudaEvent_t end) __asm__("cudaEventElapsedTime");
cudaError_t last_error() __asm__("cudaGetLastError");
const char* error_name(cudaError_t error) __asm__("cudaGetErrorName");
cudaError_t is_capturing(cudaStream_t stream,
                         cudaStreamCaptureStatus* status) __asm__("cudaStreamIsCapturing");
cudaError_t make_stream(cudaStream_t* stream, unsigned flags) __asm__("cudaStreamCreateWithFlags");
cudaError_t synchronize(cudaStream_t stream) __asm__("cudaStreamSynchronize");
cudaError_t destroy_stream(cudaStream_t stream) __asm__("cudaStreamDestroy");
cudaError_t current(int* gpu) __asm__("cudaGetDevice");
cudaError_t memory_left(std::size_t* free, std::size_t* all) __asm__("cudaMemGetInfo");
cudaError_t allocate(void** memory, std::size_t bytes) __asm__("cudaMalloc");
cudaError_t release(void* memory) __asm__("cudaFree");
cudaError_t fill(void* memory, int byte, std::size_t bytes,
                 cudaStream_t stream) __asm__("cudaMemsetAsync");
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) __asm__("cudaMemcpyAsync");
cudaError_t handle_of(cudaIpcMemHandle_t* handle, void* memory) __asm__("cudaIpcGetMemHandle");
cudaError_t open_handle(void** memory, cudaIpcMemHandle_t handle,
                        unsigned flags) __asm__("cudaIpcOpenMemHandle");
cudaError_t close_handle(void* memory) __asm__("cudaIpcCloseMemHandle");

cudaError_t make_event(cudaEvent_t* event) { return *event = nullptr, cudaSuccess; }
cudaError_t make_event_with(cudaEvent_t* event, unsigned) { return *event = nullptr, cudaSuccess; }
cudaError_t record(cudaEvent_t, cudaStream_t) { return say("record"), cudaSuccess; }
cudaError_t destroy_event(cudaEvent_t) { return cudaSuccess; }
cudaError_t query(cudaEvent_t) { return query_finds; }
cudaError_t await_event(cudaEvent_t) { return cudaSuccess; }
cudaError_t elapsed(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1, cudaSuccess; }
cudaError_t last_error() { return cudaSuccess; }
const char* error_name(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "another";
}
cudaError_t is_capturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t make_stream(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
cudaError_t synchronize(cudaStream_t) { return say("synchronize"), cudaSuccess; }
cudaError_t destroy_stream(cudaStream_t) { return cudaSuccess; }
cudaError_t current(int* gpu) { return *gpu = current_gpu, cudaSuccess; }
cudaError_t memory_left(std::size_t* free, std::size_t* all) {
  return *free = *all = free_bytes, cudaSuccess;
}
cudaError_t allocate(void** memory, std::size_t bytes) {
  return *memory = std::malloc(bytes), cudaSuccess;
}
cudaError_t release(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t fill(void* memory, int byte, std::size_t bytes, cudaStream_t) {
  return std::memset(memory, byte, bytes), cudaSuccess;
}
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  say("copy " + std::to_string(bytes));
  return std::memcpy(to, from, bytes), cudaSuccess;
}
// A handle holds the address: all is one process here.
cudaError_t handle_of(cudaIpcMemHandle_t* handle, void* memory) {
  if (failing == "handle") return cudaErrorInvalidValue;
  return std::memcpy(handle->reserved, &memory, sizeof memory), cudaSuccess;
}
cudaError_t open_handle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  if (failing == "open") return cudaErrorPeerAccessUnsupported;
  say("open");
  return std::memcpy(memory, handle.reserved, sizeof *memory), cudaSuccess;
}
cudaError_t close_handle(void*) { return say("close"), cudaSuccess; }
}

// ---- The library --------------------------------------------------------------------------------

namespace lockstep {
namespace {

int answer(const std::string& name, const std::string& more = "") {
  say(name + more);
  return name == failing ? 1 : kNcclSuccess;
}
std::size_t mib(std::size_t count) { return count << 20; }
std::string in_mib(std::size_t bytes) { return " " + std::to_string(bytes >> 20) + " MiB"; }

NcclLibrary fake_library() {
  NcclLibrary nccl{};
  nccl.error_string = [](int) { return "unhandled cuda error"; };
  nccl.get_unique_id = [](NcclUniqueId*) { return answer("id"); };
  nccl.comm_init_rank = [](NcclComm*, int, NcclUniqueId, int) { return answer("join"); };
  nccl.comm_abort = [](NcclComm) { return answer("abort"); };
  nccl.comm_get_async_error = [](NcclComm, int* error) {
    return *error = error_of_library, kNcclSuccess;
  };
  nccl.all_gather = [](const void*, void*, std::size_t count, int, NcclComm, cudaStream_t) {
    return answer("gather", " " + std::to_string(count));
  };
  nccl.reduce_scatter = [](const void*, void*, std::size_t, int, int, NcclComm, cudaStream_t) {
    return answer("sum");
  };
  nccl.all_reduce = [](const void*, void*, std::size_t, int, int, NcclComm, cudaStream_t) {
    return answer("sums");
  };
  nccl.send = [](const void*, std::size_t, int, int, NcclComm, cudaStream_t) {
    return answer("send");
  };
  nccl.receive = [](void*, std::size_t, int, int, NcclComm, cudaStream_t) {
    return answer("receive");
  };
  nccl.group_start = [] { return answer("("); };
  nccl.group_end = [] { return answer(")"); };
  nccl.mem_alloc = [](void** memory, std::size_t bytes) {
    *memory = std::aligned_alloc(4096, bytes);
    return answer("alloc", in_mib(bytes));
  };
  nccl.mem_free = [](void* memory) {
    std::free(memory);
    return answer("free");
  };
  nccl.window_register = [](NcclComm, void*, std::size_t bytes, void** window, int flags) {
    *window = nullptr;
    return answer("register", in_mib(bytes) + " " + std::to_string(flags));
  };
  nccl.window_deregister = [](NcclComm, void*) { return answer("deregister"); };
  nccl.all_to_all = [](const void*, void*, std::size_t count, int, NcclComm, cudaStream_t) {
    return answer("exchange", " " + std::to_string(count));
  };
  return nccl;
}
NcclLibrary library = fake_library();

// What is known of allocations; any other address is an allocation by itself.
std::map<CUdeviceptr, std::size_t> allocations;
std::uint32_t& word(CUdeviceptr at) { return *reinterpret_cast<std::uint32_t*>(at); }
CudaDriver fake_driver() {
  CudaDriver driver{};
  driver.wait_value = [](CUstream, CUdeviceptr at, cuuint32_t value, unsigned) {
    say((word(at) >= value ? "sees " : "waits for ") + std::to_string(value));
    return CUDA_SUCCESS;
  };
  driver.write_value = [](CUstream, CUdeviceptr at, cuuint32_t value, unsigned) {
    say("tells " + std::to_string(value));
    word(at) = value;
    return CUDA_SUCCESS;
  };
  driver.address_range = [](CUdeviceptr* base, std::size_t*, CUdeviceptr at) {
    const auto behind = allocations.upper_bound(at);
    *base =
        behind == allocations.begin() || std::prev(behind)->first + std::prev(behind)->second <= at
            ? at
            : std::prev(behind)->first;
    return CUDA_SUCCESS;
  };
  return driver;
}
CudaDriver driver = fake_driver();

[[noreturn]] void raise_here(const char* code, const char* call, const std::source_location* at) {
  throw DeviceError(code, call, *at);
}

}  // namespace

const NcclLibrary& nccl_library() { return library; }
const CudaDriver& cuda_driver() { return driver; }
void nccl_call(int result, const char* name) {
  if (result != kNcclSuccess)
    cuda_raise(library.error_string(result), name, std::source_location::current());
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

BackendStream* const kStream = reinterpret_cast<BackendStream*>(&said);

class CudaNccl : public testing::Test {
 protected:
  void SetUp() override {
    static const CudaProgram program{raise_here, ""};
    cuda_program = &program;
    library = fake_library();
    driver = fake_driver();
    allocations.clear();
    failing = "";
    capturing = false;
    free_bytes = std::size_t{1} << 40;
    taken_bytes = 0;
    ++current_gpu;  // Without communicators of another test.
    error_of_library = kNcclSuccess;
    said.clear();
  }
  static std::unique_ptr<BackendCommunicator> join(int size = 2) {
    std::unique_ptr<BackendCommunicator> ranks(
        join_nccl(CommunicatorId(128), 0, size, [](std::int64_t bytes) { taken_bytes += bytes; }));
    EXPECT_THAT(taken(), ElementsAre("join"));
    return ranks;
  }
  static std::vector<std::string> taken() { return std::exchange(said, {}); }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  }
};

// The first window is made, registered as a symmetric one, and used twice before it is handed out.
TEST_F(CudaNccl, RegistersWindowsAndGivesThemBackBeforeTheCommunicator) {
  auto ranks = join();
  EXPECT_NE(ranks->reach(), "");
  EXPECT_EQ(ranks->reach(), join()->reach());  // On one machine.
  said.clear();
  ranks->reserve(mib(9));
  EXPECT_THAT(taken(), ElementsAre("alloc 10 MiB", "register 10 MiB 1", "gather 256", "gather 256",
                                   "synchronize"));
  void* const first = ranks->allocate(1000);
  void* const second = ranks->allocate(mib(8));
  EXPECT_THAT(taken(), IsEmpty());
  void* const third = ranks->allocate(mib(70));
  EXPECT_THAT(taken(), ElementsAre("alloc 70 MiB", "register 70 MiB 1"));
  EXPECT_EQ(taken_bytes, static_cast<std::int64_t>(mib(80)));
  for (void* memory : {first, second, third}) ranks->release(memory);
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_EQ(ranks->allocate(10), first);
  ranks.reset();
  EXPECT_THAT(taken(), ElementsAre("deregister", "free", "deregister", "free", "abort"));
  EXPECT_EQ(taken_bytes, 0);
}

// Whole exchanges where both sides lie in windows; else sends and receives as ever.
TEST_F(CudaNccl, ExchangesByOneCallWhatLiesInWindows) {
  auto ranks = join();
  auto* const in = static_cast<std::byte*>(ranks->allocate(4096));
  std::vector<std::byte> out(4096);
  said.clear();
  ranks->all_to_all(kStream, in, in + 2048, 1024);
  EXPECT_THAT(taken(), ElementsAre("exchange 1024", "record"));
  const std::vector<std::string> sends{"(", "send", "receive", "send", "receive", ")", "record"};
  ranks->all_to_all(kStream, out.data(), in, 1024);
  EXPECT_EQ(taken(), sends);
  ranks->all_to_all(kStream, in, out.data(), 1024);
  EXPECT_EQ(taken(), sends);
  ranks->all_gather(kStream, in, in + 2048, 1024);
  EXPECT_THAT(taken(), ElementsAre("gather 1024", "record"));
  ranks->begin_group();
  ranks->all_gather(kStream, in, in + 2048, 64);
  ranks->all_to_all(kStream, in, in + 2048, 64);
  ranks->end_group();
  EXPECT_THAT(taken(), ElementsAre("(", "gather 64", "exchange 64", ")", "record"));
  capturing = true;
  ranks->all_to_all(kStream, in, in + 2048, 1024);
  EXPECT_THAT(taken(), ElementsAre("exchange 1024"));
  capturing = false;
  ranks->release(in);
}

TEST_F(CudaNccl, HasNoMemoryWhereCopyEnginesAreOff) {
  library.copy_engines_off = "NCCL has them from 2.28.3 on";
  library.mem_alloc = nullptr;
  library.window_register = nullptr;
  auto ranks = join();
  EXPECT_EQ(ranks->reach(), "");
  ranks.reset();
  EXPECT_THAT(taken(), ElementsAre("abort"));
}

TEST_F(CudaNccl, ReachesTwoToEightRanks) {
  EXPECT_EQ(join(1)->reach(), "");
  said.clear();
  EXPECT_NE(join(8)->reach(), "");
  said.clear();
  EXPECT_EQ(join(9)->reach(), "");
}

// Nothing is left behind, and the next attempt begins anew.
TEST_F(CudaNccl, GivesBackWhatCannotBeRegistered) {
  auto ranks = join();
  failing = "register";
  EXPECT_THAT(error_of([&] { ranks->allocate(1); }), HasSubstr("ncclCommWindowRegister"));
  EXPECT_THAT(taken(), ElementsAre("alloc 2 MiB", "register 2 MiB 1", "free"));
  failing = "";
  ranks->release(ranks->allocate(1));
  EXPECT_THAT(taken(), ElementsAre("alloc 2 MiB", "register 2 MiB 1", "gather 256", "gather 256",
                                   "synchronize"));
}

// It waits for nothing, and the next attempt begins anew.
TEST_F(CudaNccl, GivesBackAWindowThatTheFirstGatherFailsIn) {
  auto ranks = join();
  failing = "gather";
  EXPECT_THAT(error_of([&] { ranks->allocate(1); }), HasSubstr("LOCKSTEP_COPY_ENGINES=0"));
  EXPECT_THAT(taken(),
              ElementsAre("alloc 2 MiB", "register 2 MiB 1", "gather 256", "deregister", "free"));
  EXPECT_EQ(taken_bytes, 0);
  failing = "";
  ranks->allocate(1);
  EXPECT_THAT(taken(), ElementsAre("alloc 2 MiB", "register 2 MiB 1", "gather 256", "gather 256",
                                   "synchronize"));
  ranks.reset();
  EXPECT_THAT(taken(), ElementsAre("deregister", "free", "abort"));
}

TEST_F(CudaNccl, KnowsWhatItHasRoomFor) {
  auto ranks = join();
  free_bytes = mib(10);
  EXPECT_TRUE(ranks->has_room(mib(10)));
  EXPECT_FALSE(ranks->has_room(mib(10) + 1));
  EXPECT_THAT(taken(), IsEmpty());
  ranks->reserve(mib(10));
  free_bytes = 0;
  EXPECT_TRUE(ranks->has_room(mib(10)));
}

// Two ranks that reach each other's memory: this test is both.
struct Pair {
  std::unique_ptr<BackendCommunicator> sender{join_nccl({}, 0, 2, {})},
      receiver{join_nccl({}, 1, 2, {})};
  bool meet() const {
    return receiver->meet(sender->introduction()) && sender->meet(receiver->introduction());
  }
};

// The receiver waits for the sender's word, copies, and says so; no kernel of the library runs.
TEST_F(CudaNccl, CopiesFromTheSendersMemory) {
  const Pair pair;
  EXPECT_THAT(taken(), IsEmpty());  // The library is not asked.
  ASSERT_TRUE(pair.meet());
  std::vector<int> from{1, 2, 3, 4}, to(4);
  allocations[reinterpret_cast<CUdeviceptr>(from.data())] = 4 * sizeof(int);
  said.clear();
  for (const int first : {0, 2}) {
    pair.receiver->accept(pair.sender->offer(from.data() + first));
    EXPECT_EQ(taken(), first == 0 ? std::vector<std::string>{"open"} : std::vector<std::string>{});
    pair.sender->await_read(kStream);
    pair.sender->send(kStream, from.data() + first, 2 * sizeof(int), 1);
    const std::string count = std::to_string(first == 0 ? 1 : 2);
    const std::string before = std::to_string(first == 0 ? 0 : 1);
    EXPECT_THAT(taken(), ElementsAre("sees " + before, "tells " + count, "record"));
    pair.sender->await_read(kStream);
    EXPECT_THAT(taken(), ElementsAre("waits for " + count));
    pair.receiver->receive(kStream, to.data() + first, 2 * sizeof(int), 0);
    EXPECT_THAT(taken(), ElementsAre("sees " + count, "copy 8", "tells " + count, "record"));
    pair.sender->await_read(kStream);
    EXPECT_THAT(taken(), ElementsAre("sees " + count));
  }
  EXPECT_EQ(from, to);
  pair.receiver->unmap();
  EXPECT_THAT(taken(), ElementsAre("close", "close"));  // The allocation, and the flag.
  pair.sender->unmap();
  EXPECT_THAT(taken(), ElementsAre("close"));
}

// An offer may be empty: of memory that cannot be mapped. What is no transfer is refused.
TEST_F(CudaNccl, OffersWhatCanBeMappedAlone) {
  const Pair pair;
  ASSERT_TRUE(pair.meet());
  std::vector<float> memory(2);
  failing = "handle";
  EXPECT_TRUE(pair.sender->offer(memory.data()).empty());
  EXPECT_THAT(error_of([&] { pair.sender->all_reduce(kStream, memory.data(), 8); }),
              HasSubstr("a collective by copies"));
  failing = "open";
  EXPECT_THAT(error_of([&] { pair.receiver->accept(pair.sender->offer(memory.data())); }),
              HasSubstr("LOCKSTEP_COPY_ENGINES=0"));
}

// A call takes a millisecond of this runtime. A group is measured as its first call, what is
// captured not at all.
TEST_F(CudaNccl, MeasuresItsCallsByKind) {
  auto ranks = join();
  std::vector<float> memory(4);
  const auto gather = [&] { ranks->all_gather(kStream, memory.data(), memory.data(), 4); };
  gather();
  ranks->measure(true);
  gather();
  ranks->begin_group();
  gather();
  ranks->all_reduce(kStream, memory.data(), 8);
  ranks->end_group();
  ranks->all_reduce(kStream, memory.data(), 8);
  capturing = true;
  gather();
  capturing = false;
  ranks->measure(false);
  gather();
  const BackendCommunicator::Spent spent = ranks->take_spent();
  EXPECT_DOUBLE_EQ(spent.gathers, 2e-3);
  EXPECT_DOUBLE_EQ(spent.others, 1e-3);
  EXPECT_EQ(ranks->take_spent().gathers, 0);
}

TEST_F(CudaNccl, SendsAndReceivesByTheLibrary) {
  auto ranks = join();
  std::vector<float> memory(2);
  ranks->send(kStream, memory.data(), 4, 1);
  ranks->receive(kStream, memory.data() + 1, 4, 1);
  EXPECT_THAT(taken(), ElementsAre("send", "record", "receive", "record"));
}

TEST_F(CudaNccl, DoesNotMeetWhereCopiesAreNotPossible) {
  const Pair pair;
  failing = "open";
  EXPECT_FALSE(pair.meet());
  failing = "";
  auto words = pair.sender->introduction();
  words.back() ^= std::byte{1};  // Of another machine.
  EXPECT_FALSE(pair.receiver->meet(words));
  EXPECT_FALSE(pair.receiver->meet({}));
  driver.wait_value = nullptr;  // An old driver.
  EXPECT_TRUE(pair.sender->introduction().empty());
  driver = fake_driver();
  library.copy_engines_off = "LOCKSTEP_COPY_ENGINES=0";
  EXPECT_TRUE(pair.sender->introduction().empty());
}

// The next run of the process joins it again, as the same rank.
TEST_F(CudaNccl, KeepsACommunicatorThatEndedWell) {
  auto ranks = join();
  ranks->keep();
  EXPECT_THAT(spare_nccl_ids(0, 2), IsEmpty());  // It is in use.
  ranks.reset();
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_THAT(spare_nccl_ids(0, 2), ElementsAre(CommunicatorId(128)));
  EXPECT_THAT(spare_nccl_ids(1, 2), IsEmpty());
  EXPECT_THAT(spare_nccl_ids(0, 3), IsEmpty());
  ++current_gpu;
  EXPECT_THAT(spare_nccl_ids(0, 2), IsEmpty());
  --current_gpu;
  ::setenv("NCCL_ALGO", "Ring", 1);  // Its sums would have another order.
  EXPECT_THAT(spare_nccl_ids(0, 2), IsEmpty());
  ::unsetenv("NCCL_ALGO");
  ranks.reset(join_nccl(CommunicatorId(128), 0, 2, [](std::int64_t) {}));
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_THAT(spare_nccl_ids(0, 2), IsEmpty());
}

TEST_F(CudaNccl, KeepsNoneThatMayBeBrokenOrIsNotWanted) {
  const auto joined = [] {
    auto ranks = join();
    ranks->keep();
    return ranks;
  };
  auto ranks = joined();
  error_of_library = 1;
  ranks.reset();
  EXPECT_THAT(taken(), ElementsAre("abort"));
  error_of_library = kNcclInProgress;
  joined().reset();
  EXPECT_THAT(taken(), ElementsAre("abort"));
  error_of_library = kNcclSuccess;
  ranks = joined();
  ranks->begin_group();
  ranks.reset();
  EXPECT_THAT(taken(), ElementsAre("(", "abort"));
  ranks = joined();
  query_finds = cudaErrorNotReady;
  ranks.reset();
  query_finds = cudaSuccess;
  EXPECT_THAT(taken(), ElementsAre("abort"));
  join().reset();  // The process has no other run.
  EXPECT_THAT(taken(), ElementsAre("abort"));
  EXPECT_THAT(spare_nccl_ids(0, 2), IsEmpty());
}

// Communicators take device memory, so the oldest goes for a new one.
TEST_F(CudaNccl, KeepsFew) {
  for (int i = 0; i < 40; ++i) {
    const std::unique_ptr<BackendCommunicator> ranks(
        join_nccl(CommunicatorId(128, static_cast<std::byte>(i)), 0, 2, [](std::int64_t) {}));
    ranks->keep();
  }
  const auto ids = spare_nccl_ids(0, 2);
  ASSERT_EQ(ids.size(), 16u);
  EXPECT_EQ(ids.back(), CommunicatorId(128, std::byte{39}));
  EXPECT_EQ(std::ranges::count(said, "abort"), 24);
}

TEST_F(CudaNccl, NamesTheFunctionThatFails) {
  failing = "id";
  EXPECT_THAT(error_of([] { new_nccl_id(); }), HasSubstr("ncclGetUniqueId"));
}

}  // namespace
}  // namespace lockstep
