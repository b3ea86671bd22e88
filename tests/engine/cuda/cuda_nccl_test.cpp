// The calls at NCCL, in which order, and what becomes of its failures: over a library and a runtime
// that only keep a list. No GPU is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/cuda/call.h"
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
cudaError_t memory_left(std::size_t* free, std::size_t* all) __asm__("cudaMemGetInfo");

cudaError_t make_event(cudaEvent_t* event) { return *event = nullptr, cudaSuccess; }
cudaError_t make_event_with(cudaEvent_t* event, unsigned) { return *event = nullptr, cudaSuccess; }
cudaError_t record(cudaEvent_t, cudaStream_t) { return say("record"), cudaSuccess; }
cudaError_t destroy_event(cudaEvent_t) { return cudaSuccess; }
cudaError_t query(cudaEvent_t) { return cudaSuccess; }
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
cudaError_t memory_left(std::size_t* free, std::size_t* all) {
  return *free = *all = free_bytes, cudaSuccess;
}
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
  nccl.comm_get_async_error = [](NcclComm, int* error) { return *error = 0; };
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

[[noreturn]] void raise_here(const char* code, const char* call, const std::source_location* at) {
  throw DeviceError(code, call, *at);
}

}  // namespace

const NcclLibrary& nccl_library() { return library; }
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
    failing = "";
    capturing = false;
    free_bytes = std::size_t{1} << 40;
    taken_bytes = 0;
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

TEST_F(CudaNccl, NamesTheFunctionThatFails) {
  failing = "id";
  EXPECT_THAT(error_of([] { new_nccl_id(); }), HasSubstr("ncclGetUniqueId"));
}

}  // namespace
}  // namespace lockstep
