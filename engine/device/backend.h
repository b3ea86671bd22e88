// The operations of a device, as the CUDA runtime has it. Two implementations: engine/sim and
// engine/cuda (a shared object). The rest of the engine uses the owning classes of
// engine/device/device.h, never this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/device/backend_communicator.h"
#include "engine/device/profiler.h"
#include "engine/device/step_location.h"
#include "kernels/submission/submission.h"

namespace lockstep {

// The environment failed: CUDA, or the simulator in CUDA's place. `code` is CUDA's name of the
// error
// ("cudaErrorStreamCaptureUnsupported", "cudaErrorMemoryAllocation", ...).
class DeviceError : public std::runtime_error {
 public:
  DeviceError(std::string code, const std::string& call,
              std::source_location at = std::source_location::current());
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

enum class CopyKind : std::uint8_t { host_to_device, device_to_host, device_to_device };
enum class CaptureStatus : std::uint8_t { none, active, invalidated };

struct DeviceInfo {
  std::string kind;  // "sim" or "cuda".
  std::string name;
  std::string driver, cuda, nccl, cudnn, cublas;  // Versions, "" where absent.
  std::string cudnn_frontend;  // For the headers that attention by cuDNN was built with; "" where
                               // it was not.
  std::string nvtx;  // Version of NVTX that ranges for a profiler were built with; "" without.
  std::string copy_engines_off;  // Why NCCL exchanges by kernels; "" where it may by copy engines.
  int compute_capability = 0;    // 90 for sm_90; 0 on sim.
};

// Opaque handles, owned by the backend.
struct BackendStream;
struct BackendEvent;
struct BackendGraph;  // An instantiated graph.

// The clocks at this moment; zeros where they are not known.
struct DeviceClocks {
  int sm_mhz = 0, memory_mhz = 0, power_watts = 0;
};

// Counts of the products that were planned.
struct PlanCounts {
  int library = 0;  // Distinct products that a library computes.
  int own = 0;  // Distinct products left to our own kernel: the library is absent, or none of its
                // algorithms fits.
  // Calls that our own kernel did, those of products that were never planned included.
  std::int64_t own_calls = 0;
};

// Every call throws DeviceError with CUDA's code. Semantics of the CUDA runtime; capture in
// thread-local mode.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual DeviceClocks clocks() const { return {}; }
  virtual Profiler* profiler() { return nullptr; }  // For this process; null where none listens.

  // Called before the first call on a thread other than the one that opened the device.
  virtual void enter_thread() {}

  // A library's communicator over several processes: all join with the id that rank 0 made. The
  // caller owns it.
  virtual CommunicatorId new_communicator_id() {
    throw DeviceError("cudaErrorNotSupported", "new_communicator_id");
  }
  virtual BackendCommunicator* join_communicator(const CommunicatorId&, int rank, int size) {
    throw DeviceError("cudaErrorNotSupported", "join_communicator");
  }
  // Returns the ids of communicators that earlier runs of this process have left, in which this
  // rank had that number among so many. The ranks that all still have one may join it again.
  virtual std::vector<CommunicatorId> spare_communicators(int /*rank*/, int /*size*/) { return {}; }

  // Device memory, 256-byte aligned; null for no bytes. Illegal while capturing; memory released
  // meanwhile breaks the capture and is given back later.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // The same, in memory that `ranks` has for what is exchanged. They outlive it.
  virtual void* allocate_shared(BackendCommunicator&, std::size_t) {
    throw DeviceError("cudaErrorNotSupported", "allocate_shared");
  }
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  // Stream-ordered pool; cudaErrorNotSupported on a stream that captures (graphs here own no
  // memory).
  virtual void* allocate_async(BackendStream*, std::size_t bytes) = 0;
  virtual void release_async(BackendStream*, void* memory) = 0;
  virtual std::size_t memory_in_use() const = 0;  // Bytes of device memory allocated now.
  virtual std::size_t memory_high_water() const = 0;
  // Device memory that is not free, whoever has it and for what, as the driver says: graphs and
  // streams take some too. The simulated device has no more than is allocated.
  virtual std::size_t memory_by_driver() const = 0;

  virtual BackendStream* create_stream(const char* name) = 0;
  // May wait for the stream's work, so it breaks a capture of this thread. What becomes of a
  // capture that the stream takes part in is not modelled.
  virtual void destroy_stream(BackendStream*) noexcept = 0;
  virtual BackendEvent* create_event() = 0;
  // Records and waits that are under way go on. Of an event that a graph records or awaits as an
  // external one, the graph must go first; what happens otherwise is not modelled.
  virtual void destroy_event(BackendEvent*) noexcept = 0;

  // Chooses how an op like this one will be computed, where there is a choice. An op that was never
  // planned runs too, in the plain way. Not during a capture: it allocates memory and waits for the
  // device.
  virtual void plan(const Submission&) {}
  virtual PlanCounts plans() const { return {}; }
  // Bytes of workspace that an op of a library takes, which is planned by that; 0 for all other
  // ops. By reckoning where there is no such library. Not during a capture.
  virtual std::int64_t workspace_bytes(const Submission&) { return 0; }
  // Runs the op by the fastest library known, whatever its bits; false if no library runs it. The
  // first call of an op chooses, so must not be in a capture. For measurements.
  virtual bool submit_fastest(BackendStream*, const Submission&) { return false; }

  virtual void submit(BackendStream*, const Submission&) = 0;
  virtual void copy(BackendStream*, void* to, const void* from, std::size_t bytes, CopyKind) = 0;
  virtual void fill(BackendStream*, void* to, std::uint8_t byte, std::size_t bytes) = 0;
  virtual void record(BackendStream*, BackendEvent*, bool external) = 0;
  virtual void wait(BackendStream*, BackendEvent*, bool external) = 0;
  virtual bool finished(BackendStream*) = 0;
  virtual bool finished(BackendEvent*) = 0;
  virtual void synchronize(BackendStream*) = 0;
  virtual void synchronize(BackendEvent*) = 0;

  // The host's own turn in a graph: captured, run when the node is reached; a launch then returns
  // when the graph is done. For exchanges over the host on the simulated device;
  // cudaErrorNotSupported elsewhere. `name` is kept as it is.
  virtual void call(BackendStream*, const char*, std::function<void()>) {
    throw DeviceError("cudaErrorNotSupported", "call");
  }

  // Pressure: what comes later on the stream starts `amount` microseconds (on sim: turns) later;
  // captured as a node.
  virtual void delay(BackendStream*, std::int64_t amount) = 0;
  virtual void set_poison(bool fresh, bool freed) = 0;
  virtual std::int64_t bytes_poisoned() const = 0;  // When allocated and when freed.
  virtual void host_acts() = 0;  // The host is about to touch pinned memory: its turn in a schedule
                                 // that is given.

  virtual void begin_capture(BackendStream*) = 0;
  virtual CaptureStatus capture_status(BackendStream*) = 0;
  virtual BackendGraph* end_capture(BackendStream*) = 0;  // Ends and instantiates.
  virtual void launch(BackendGraph*, BackendStream*) = 0;
  // A launch that is under way goes on. Not during a capture; what CUDA does then is not modelled.
  virtual void destroy_graph(BackendGraph*) noexcept = 0;
};

// One step that the simulator's schedule ran.
struct SimStep {
  int stream;        // In order of creation at the backend; inside a graph, the stream captured.
  const char* what;  // The op's name, "copy", "fill" or "release".
  int launch = -1;  // Inside a graph: which launch, in order of the calls; and which node, in order
                    // of capture.
  int node = -1;
  friend bool operator==(const SimStep&, const SimStep&) = default;
};

// A turn in a schedule that is given: the next item of a stream, or of one lane of the graph at its
// head; or the host's next act (a synchronisation, a copy that it waits for, an access to pinned
// memory, a release).
struct SimTurn {
  int stream = -1;  // -1: the host.
  int lane = -1;    // Captured streams in the order in which they joined.
};
struct SimGiven {
  std::vector<SimTurn> turns;
  bool followed = true;  // False when the run made other calls than the schedule was made for.
};

// Options of the simulator's scheduler.
struct SimOptions {
  enum class Policy : std::uint8_t {
    program,  // Runs each op as soon as it is submitted and its edges allow: what a lucky GPU does.
    lazy,  // Runs nothing before a host call needs it, and then only what that needs, latest stream
           // first.
    random,  // A seeded choice among the runnable ops.
    pct,     // Probabilistic concurrency testing with `depth` priority changes in about 1000 steps.
    given,   // Exactly `given`.
  };
  Policy policy = Policy::random;
  std::uint64_t seed = 1;
  int depth = 1;
  SimGiven* given = nullptr;  // Must outlive the backend.
  // Appended to in order of execution; must outlive the backend.
  std::vector<SimStep>* trace = nullptr;
  Profiler* profiler = nullptr;  // Must outlive the backend.
  // Called when an op has run, before any other runs. Of an op in a graph, step and microbatch are
  // those of the launch, where the launch is part of one.
  std::function<void(const Submission&, const StepLocation&)> op_ran = {};
  // The same of a copy.
  std::function<void(void* to, const void* from, std::size_t bytes)> copy_ran = {};
};
std::unique_ptr<Backend> open_sim(const SimOptions& options = {});

// Opens the CUDA shared object and GPU `index`. Throws DeviceError when there is no object, no
// driver or no GPU.
std::unique_ptr<Backend> open_cuda(int index = 0);

// The GPUs that open_cuda() would find; empty where there is none. Never throws.
std::vector<DeviceInfo> cuda_devices() noexcept;

}  // namespace lockstep
