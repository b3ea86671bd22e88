#include "kernels/cuda/gemm/product_plans.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/core/fault.h"
#include "kernels/core/fda16.h"
#include "kernels/cuda/gemm/cublas_lt.h"
#include "kernels/cuda/gemm/fp8_trial.h"
#include "kernels/cuda/gemm/linear_plan.h"

namespace lockstep {

// ---- The model ----------------------------------------------------------------------------------

namespace {

template <class A>
float trial_of_codes_by_the_model(const Product& product, int trial, int index) {
  const trial::StepLocation at = trial::place(product, index);
  std::vector<A> a;
  std::vector<e4m3> b;
  for (std::int64_t k = 0; k < product.k; ++k) {
    a.push_back(trial::a_code<A>(at.row, k, product.k));
    b.push_back(trial::b_code(at.col, k, product.k));
  }
  const trial::Scales scales = trial::scales(product, trial);
  const float sum = mul(dot8(product.k, a.data(), 1, b.data(), 1), mul(scales.a, scales.b));
  if (product.accumulates) return add(trial::c_of_codes(product, trial, at.row, at.col), sum);
  return product.fp32 ? sum : load(st<bf16>(sum));
}

}  // namespace

int trials_of(const Product& product) {
  return product.factors == Factors::bf16 ? 1 : trial::kFp8Trials;
}

float trial_by_the_model(const Product& product, int trial, int index) {
  if (product.factors == Factors::e4m3)
    return trial_of_codes_by_the_model<e4m3>(product, trial, index);
  if (product.factors == Factors::e5m2_e4m3)
    return trial_of_codes_by_the_model<e5m2>(product, trial, index);
  const trial::StepLocation at = trial::place(product, index);
  std::vector<float> a(static_cast<std::size_t>(product.k)), b(a);
  for (std::int64_t k = 0; k < product.k; ++k) {
    a[static_cast<std::size_t>(k)] = load(trial::a(at.row, k, product.k));
    b[static_cast<std::size_t>(k)] = load(trial::b(at.col, k, product.k));
  }
  const float sum = fda_chain(kSm90, 0, product.k, a.data(), 1, b.data(), 1, 0.0f);
  if (product.accumulates) return add(trial::c(at.row, at.col), sum);
  return product.fp32 ? sum : load(st<bf16>(sum));
}

#if LOCKSTEP_HAS_CUBLAS_LT

namespace {

constexpr int kMostAlgorithms = 16;
constexpr double kTimedFlop =
    1e9;  // Below this the library's first guess is taken: timing would not tell a difference.
constexpr int kRounds = 4, kTimedRuns = 3;
constexpr std::size_t kAnyWorkspace = std::size_t{64} << 20;

void cuda_check(cudaError_t error) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(cudaGetErrorName(error));
}

class TrialStream {
 public:
  TrialStream() { cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~TrialStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  TrialStream(const TrialStream&) = delete;
  TrialStream& operator=(const TrialStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void synchronize() const { cuda_check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Thrown where the model leaves no memory for a trial.
struct NoRoom : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class TrialMemory {
 public:
  explicit TrialMemory(std::size_t bytes) {
    const cudaError_t error = cudaMalloc(&data_, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw NoRoom(cudaGetErrorName(error));
    }
    cuda_check(error);
  }
  ~TrialMemory() { static_cast<void>(cudaFree(data_)); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

std::size_t bytes_of(std::int64_t rows, std::int64_t pitch, std::size_t size) {
  return static_cast<std::size_t>(rows * pitch) * size;
}

// The stream and memory of trials. The memory is one allocation, kept between trials if small.
class TrialRoom {
 public:
  const TrialStream& stream() const { return stream_; }
  void* reserve(std::size_t bytes) {
    if (bytes > kKept) {
      large_.reset();
      return large_.emplace(bytes).data();
    }
    keep();
    return kept_->data();
  }
  // Allocates the part that is kept, which later small requests use.
  void keep() {
    static_assert(kAnyWorkspace <= kKept);
    if (!kept_) kept_.emplace(kKept);
  }
  void leave() { large_.reset(); }

 private:
  static constexpr std::size_t kKept = std::size_t{64} << 20;
  TrialStream stream_;
  std::optional<TrialMemory> kept_, large_;
};

// A random product, in one allocation with its results.
class Trial {
 public:
  Trial(const CublasLt& library, const Product& product, std::size_t workspace_bytes,
        TrialRoom& room)
      : product_(product), described_(library, product), room_(room), stream_(room.stream()) {
    const std::size_t result =
        bytes_of(product.m, product.c_pitch, product.fp32 ? sizeof(float) : sizeof(bf16));
    const std::size_t sizes[] = {
        bytes_of(product.a_along ? product.m : product.k, product.a_pitch, product.factor_bytes()),
        bytes_of(product.b_along ? product.n : product.k, product.b_pitch, product.factor_bytes()),
        result,
        result,
        workspace_bytes,
        sizeof(Found),
        sizeof(float),
        sizeof(float)};
    std::size_t bytes = 0;
    for (const std::size_t size : sizes) bytes += aligned(size);
    auto* at = static_cast<std::byte*>(room.reserve(bytes));
    void* parts[std::size(sizes)];
    for (std::size_t i = 0; i < std::size(sizes); ++i)
      parts[i] = std::exchange(at, at + aligned(sizes[i]));
    memory_ = {.a = parts[0],
               .b = parts[1],
               .c = parts[2],
               .a_scale = static_cast<const float*>(parts[6]),
               .b_scale = static_cast<const float*>(parts[7]),
               .workspace = parts[4],
               .workspace_bytes = workspace_bytes};
    scales_[0] = parts[6], scales_[1] = parts[7];
    own_ = parts[3];
    found_ = static_cast<Found*>(parts[5]);
    write_trial(stream_.get(), product_, parts[0], parts[1]);
    set_scales(0);
  }
  ~Trial() {
    static_cast<void>(cudaStreamSynchronize(stream_.get()));  // The next trial reuses the memory.
    room_.leave();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  struct Compared {
    // Our own kernel has the model's bits in 64 elements. Then it stands for the model in all.
    bool own_is_the_model = true;
    // Whether each algorithm has our own kernel's bits in every element; empty where the library
    // refused to run it, whose guess was wrong.
    std::vector<std::optional<bool>> equal_own;
  };
  // At most kMostAlgorithms.
  Compared compare(std::span<const cublasLtMatmulAlgo_t> algorithms) const {
    Compared all;
    for (int trial = 0; trial < trials_of(product_); ++trial) {
      set_scales(trial);
      run_own(trial);
      const Compared one = compare_in(trial, algorithms);
      all.own_is_the_model = all.own_is_the_model && one.own_is_the_model;
      if (trial == 0) all.equal_own = one.equal_own;
      for (std::size_t i = 0; i < algorithms.size(); ++i) {
        if (one.equal_own[i] == false) all.equal_own[i] = false;
      }
    }
    return all;
  }

  double seconds(const cublasLtMatmulAlgo_t& algorithm) const {
    cudaEvent_t from = nullptr, to = nullptr;
    cuda_check(cudaEventCreate(&from));
    cuda_check(cudaEventCreate(&to));
    described_.run(stream_.get(), algorithm, memory_);
    cuda_check(cudaEventRecord(from, stream_.get()));
    for (int i = 0; i < kTimedRuns; ++i) described_.run(stream_.get(), algorithm, memory_);
    cuda_check(cudaEventRecord(to, stream_.get()));
    stream_.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, from, to));
    cuda_check(cudaEventDestroy(from));
    cuda_check(cudaEventDestroy(to));
    return static_cast<double>(ms) * 1e-3 / kTimedRuns;
  }

  const LibraryProduct& described() const { return described_; }

 private:
  void set_scales(int trial) const {
    if (product_.factors == Factors::bf16) return;
    const trial::Scales scales = trial::scales(product_, trial);
    const auto put = [&](void* to, const float& scale) {
      cuda_check(cudaMemcpyAsync(to, &scale, sizeof scale, cudaMemcpyHostToDevice, stream_.get()));
    };
    put(scales_[0], scales.a);
    put(scales_[1], scales.b);
  }
  void run_own(int trial) const {
    write_trial_result(stream_.get(), product_, trial, own_);
    ProductMemory own = memory_;
    own.c = own_;
    run_own_product(CudaQueue{stream_.get()}, product_, own);
  }
  // The host waits once for all of them: on a GPU that several processes share, each wait takes a
  // turn of all processes.
  Compared compare_in(int trial, std::span<const cublasLtMatmulAlgo_t> algorithms) const {
    gather_trial(stream_.get(), product_, own_, found_->gathered);
    cuda_check(cudaMemsetAsync(found_->differences, 0, sizeof found_->differences, stream_.get()));
    std::vector<bool> ran(algorithms.size(), false);
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      write_trial_result(stream_.get(), product_, trial, memory_.c);
      cuda_check(cudaMemsetAsync(memory_.workspace, 0x5a, memory_.workspace_bytes, stream_.get()));
      try {
        described_.run(stream_.get(), algorithms[i], memory_);
      } catch (const LibraryRefusal&) {
        continue;
      }
      ran[i] = true;
      count_trial_differences(stream_.get(), product_, memory_.c, own_, found_->differences + i);
    }
    Found found{};
    cuda_check(
        cudaMemcpyAsync(&found, found_, sizeof found, cudaMemcpyDeviceToHost, stream_.get()));
    stream_.synchronize();
    Compared compared;
    for (int i = 0; i < trial::kPlaces; ++i) {
      const float x = found.gathered[i], want = trial_by_the_model(product_, trial, i);
      if (bits(x) != bits(want) && (x == x || want == want)) compared.own_is_the_model = false;
    }
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      compared.equal_own.push_back(ran[i] ? std::optional(found.differences[i] == 0)
                                          : std::nullopt);
    }
    return compared;
  }

  // On the device, copied to the host at once.
  struct Found {
    float gathered[trial::kPlaces];
    unsigned long long differences[kMostAlgorithms];
  };
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  Product product_;
  LibraryProduct described_;
  TrialRoom& room_;
  const TrialStream& stream_;
  ProductMemory memory_;
  void* scales_[2];
  void* own_;
  Found* found_;
};

// Whether the pitches are multiples of what the library needs.
bool is_aligned(const Product& p) {
  const std::int64_t factor = 16 / static_cast<std::int64_t>(p.factor_bytes());
  const std::int64_t result = p.fp32 ? 4 : 8;
  if (p.a_pitch < (p.a_along ? p.k : p.m) || p.b_pitch < (p.b_along ? p.k : p.n) || p.c_pitch < p.n)
    return false;
  return p.a_pitch % factor == 0 && p.b_pitch % factor == 0 && p.c_pitch % result == 0 &&
         p.n % result == 0;
}
bool is_aligned(const ProductMemory& memory) {
  const auto lies_at = [](std::uintptr_t step, const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % step == 0;
  };
  for (const void* p :
       {memory.a, memory.b, static_cast<const void*>(memory.c),
        static_cast<const void*>(memory.a_scale), static_cast<const void*>(memory.b_scale)}) {
    if (!lies_at(16, p)) return false;
  }
  return lies_at(256, memory.workspace);
}

// Returns the first of the fastest. Algorithms are timed in turns, because the clock of a GPU falls
// as it warms up, which would favour those timed first.
std::size_t fastest(const Trial& trial, const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  std::vector<double> times(algorithms.size(), 0);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < algorithms.size(); ++i)
      times[i] += trial.seconds(algorithms[i]) / kRounds;
  }
  return static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
}

// Says why our own kernel is to run a product, if LOCKSTEP_EXPLAIN_PLANS is set.
void explain(const Product& p, const std::string& why) {
  if (std::getenv("LOCKSTEP_EXPLAIN_PLANS") == nullptr) return;
  const auto number = [](std::int64_t x) { return std::to_string(x); };
  std::cerr << "our own kernel runs the product of " + number(p.m) + " x " + number(p.n) + " x " +
                   number(p.k) + (p.factors == Factors::bf16 ? " bf16" : " fp8") +
                   (p.accumulates ? " numbers that is added: " : " numbers: ") + why + "\n";
}

// Returns the admitted algorithm; among several the fastest, which has the same bits.
std::optional<cublasLtMatmulAlgo_t> admitted_algorithm(const CublasLt& library,
                                                       const Product& product,
                                                       std::size_t workspace_bytes,
                                                       TrialRoom& room) {
  const Trial trial(library, product, workspace_bytes, room);
  const bool any_order = faulty("product-of-any-order", false, true);
  const double flop = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                      static_cast<double>(product.k);
  const bool takes_the_first = flop < kTimedFlop;
  const auto algorithms =
      trial.described().algorithms(!any_order, workspace_bytes, kMostAlgorithms);
  std::vector<cublasLtMatmulAlgo_t> admitted;
  std::size_t next = 0;
  do {
    // The first guess is right nearly always, and each algorithm that runs is loaded for that.
    const std::size_t count = takes_the_first && next == 0
                                  ? std::min<std::size_t>(1, algorithms.size())
                                  : algorithms.size() - next;
    const Trial::Compared compared = trial.compare(std::span(algorithms).subspan(next, count));
    if (!compared.own_is_the_model) {
      explain(product, "its bits are not the model's");
      return {};
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<bool> equal = compared.equal_own[i];
      if (equal && *equal != any_order) admitted.push_back(algorithms[next + i]);
    }
    next += count;
  } while (next < algorithms.size() && (!takes_the_first || admitted.empty()));
  if (admitted.empty()) {
    explain(product, "none of " + std::to_string(algorithms.size()) + " algorithms has its bits");
    return {};
  }
  return admitted[takes_the_first || admitted.size() == 1 ? 0 : fastest(trial, admitted)];
}

struct LibraryPlan {
  LibraryProduct described;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace_bytes;
};

// The plans that this process has found on one GPU. Trials of a product cost milliseconds, and
// their result does not depend on the caller. Never destroyed, because the driver may end before
// it.
class PlanStore {
 public:
  static PlanStore& here() {
    static auto& stores = *new std::map<int, PlanStore>;
    int device = 0;
    cuda_check(cudaGetDevice(&device));
    return stores[device];
  }
  const CublasLt* library() {
    if (!tried_) opened_ = CublasLt::open(), tried_ = true;
    return opened_.get();
  }
  TrialRoom& room() { return room_ ? *room_ : room_.emplace(); }

  // Returns null if our own kernel is to run the product.
  const LibraryPlan* plan(const Product& product, std::size_t workspace_bytes) {
    const bool any_order = faulty("product-of-any-order", false, true);
    const Key key{product, workspace_bytes, any_order};
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second.get();
    try {
      return plans_.emplace(key, made(product, workspace_bytes)).first->second.get();
    } catch (const NoRoom& error) {  // A later device may have memory for a trial.
      explain(product, std::string("no memory for a trial: ") + error.what());
      return nullptr;
    }
  }
  // Returns the fastest of all algorithms with any workspace, or null if there is none.
  const LibraryPlan* fastest_plan(const Product& product) {
    const auto known = fastest_.find(product);
    if (known != fastest_.end()) return known->second.get();
    std::unique_ptr<LibraryPlan> made;
    try {
      made = made_fastest(product);
    } catch (const NoRoom&) {
    } catch (const LibraryRefusal&) {
    }
    return fastest_.emplace(product, std::move(made)).first->second.get();
  }

 private:
  using Key = std::tuple<Product, std::size_t, bool>;
  std::unique_ptr<LibraryPlan> made_fastest(const Product& product) {
    const CublasLt* const library = this->library();
    if (library == nullptr || !is_aligned(product)) return nullptr;
    const Trial trial(*library, product, kAnyWorkspace, room());
    const auto algorithms = trial.described().algorithms(false, kAnyWorkspace, kMostAlgorithms);
    if (algorithms.empty()) return nullptr;
    room().keep();  // Runs take their workspace there.
    return std::unique_ptr<LibraryPlan>(new LibraryPlan{
        {*library, product}, algorithms[fastest(trial, algorithms)], kAnyWorkspace});
  }
  std::unique_ptr<LibraryPlan> made(const Product& product, std::size_t workspace_bytes) {
    const CublasLt* const library = this->library();
    if (library == nullptr || !is_aligned(product) || workspace_bytes == 0) {
      explain(product, "cuBLASLt does not compute it");
      return nullptr;
    }
    try {
      const auto algorithm = admitted_algorithm(*library, product, workspace_bytes, room());
      if (!algorithm) return nullptr;
      return std::unique_ptr<LibraryPlan>(
          new LibraryPlan{{*library, product}, *algorithm, workspace_bytes});
    } catch (const LibraryRefusal& error) {
      explain(product, error.what());
      return nullptr;
    }
  }

  bool tried_ = false;
  std::unique_ptr<CublasLt> opened_;
  std::optional<TrialRoom> room_;
  std::map<Key, std::unique_ptr<LibraryPlan>> plans_;
  std::map<Product, std::unique_ptr<LibraryPlan>> fastest_;
};

}  // namespace

struct ProductPlans::Impl {
  std::map<Product, const LibraryPlan*> plans;  // Null means our own kernel.
  std::int64_t passed_on = 0;

  // A product for fewer multiprocessors that has no plan takes the one for all.
  const LibraryPlan* plan_of(Product product) const {
    auto found = plans.find(product);
    if (found == plans.end() || found->second == nullptr) {
      product.multiprocessors = 0;
      found = plans.find(product);
    }
    return found == plans.end() ? nullptr : found->second;
  }
};

ProductPlans::ProductPlans() : impl_(std::make_unique<Impl>()) {}
ProductPlans::~ProductPlans() = default;

void ProductPlans::plan(const Product& product, std::size_t workspace_bytes) {
  if (impl_->plans.contains(product)) return;
  impl_->plans.emplace(product, PlanStore::here().plan(product, workspace_bytes));
}

bool ProductPlans::run(CUstream_st* stream, const Product& product,
                       const ProductMemory& memory) const {
  const LibraryPlan* const plan = impl_->plan_of(product);
  if (plan == nullptr || !is_aligned(memory) || memory.workspace_bytes < plan->workspace_bytes) {
    ++impl_->passed_on;
    return false;
  }
  plan->described.run(stream, plan->algorithm, memory);
  return true;
}

int ProductPlans::admitted() const {
  int count = 0;
  for (const auto& [product, plan] : impl_->plans)
    count += product.multiprocessors == 0 && plan != nullptr;
  return count;
}
int ProductPlans::refused() const {
  int count = 0;
  for (const auto& [product, plan] : impl_->plans)
    count += product.multiprocessors == 0 && plan == nullptr;
  return count;
}
std::int64_t ProductPlans::passed_on() const { return impl_->passed_on; }

bool ProductPlans::run_fastest(CUstream_st* stream, const Product& product,
                               const ProductMemory& memory) {
  PlanStore& store = PlanStore::here();
  const LibraryPlan* const plan = is_aligned(memory) ? store.fastest_plan(product) : nullptr;
  if (plan == nullptr) return false;
  ProductMemory own = memory;
  own.workspace = store.room().reserve(kAnyWorkspace);
  own.workspace_bytes = kAnyWorkspace;
  plan->described.run(stream, plan->algorithm, own);
  return true;
}

#else

struct ProductPlans::Impl {
  int refused = 0;
  std::int64_t passed_on = 0;
};
ProductPlans::ProductPlans() : impl_(std::make_unique<Impl>()) {}
ProductPlans::~ProductPlans() = default;
void ProductPlans::plan(const Product& product, std::size_t) {
  if (product.multiprocessors == 0) ++impl_->refused;
}
bool ProductPlans::run(CUstream_st*, const Product&, const ProductMemory&) const {
  ++impl_->passed_on;
  return false;
}
int ProductPlans::admitted() const { return 0; }
int ProductPlans::refused() const { return impl_->refused; }
std::int64_t ProductPlans::passed_on() const { return impl_->passed_on; }
bool ProductPlans::run_fastest(CUstream_st*, const Product&, const ProductMemory&) { return false; }

#endif

}  // namespace lockstep
