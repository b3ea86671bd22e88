#include "harness/case/guard.h"

#include <set>
#include <tuple>

#include "harness/base/errors.h"
#include "harness/case/calibrate.h"
#include "harness/case/calibrate_fp8.h"
#include "kernels/core/fault.h"
#include "kernels/diagnostics/fingerprint.h"
#include "kernels/diagnostics/guard.h"

namespace lockstep {
namespace {

constexpr char kRefused[] = "refused: bits from here would mean nothing: ";

}  // namespace

void guard_host() {
  const std::string complaint = host_complaint();
  if (!complaint.empty()) throw WorldError(kRefused + complaint);
}

void guard_device(Backend& backend) {
  constexpr std::size_t kBytes = kFingerprints * sizeof(std::uint64_t);
  std::uint64_t hashes[kFingerprints] = {};
  BackendStream* const stream = backend.create_stream("guard");
  void* const memory = backend.allocate(kBytes);
  backend.submit(stream,
                 Submission(Fingerprint{
                     .hashes = tensor(static_cast<std::uint64_t*>(memory), 1, kFingerprints)}));
  backend.copy(stream, hashes, memory, kBytes, CopyKind::device_to_host);
  backend.synchronize(stream);
  backend.release(memory);
  backend.destroy_stream(stream);
  const std::string complaint = fingerprint_complaint(hashes);
  if (!complaint.empty()) throw WorldError(kRefused + backend.info().name + ": " + complaint);
}

void guard_tensor_cores(Backend& backend) {
  constexpr std::int64_t kDots = 4000;
  const DeviceInfo& device = backend.info();
  const auto model = constants_of(device);
  const std::string refused = kRefused + device.name + " (" + architecture_of(device) + "): ";
  if (!model)
    throw WorldError(refused +
                     "the constants of its tensor cores are not known, so bf16 cannot be judged");
  const Calibration result = calibrate(backend, *model, kDots, 1);
  if (result.first)
    throw WorldError(refused + "its tensor cores are not the model's\n" + text(*result.first));
}

void guard_fp8(Backend& backend) {
  constexpr std::int64_t kSums = 4000;
  const DeviceInfo& device = backend.info();
  const std::string refused = kRefused + device.name + " (" + architecture_of(device) + "): ";
  if (architecture_of(device) != "sm_90")
    throw WorldError(refused + "the sums of its fp8 tensor cores are not known");
  const Fp8Calibration result = calibrate_fp8(backend, kSums, 1);
  if (result.first)
    throw WorldError(refused + "its fp8 tensor cores are not the model's\n" + text(*result.first));
}

void once_a_process(void (*guard)(Backend&), Backend& backend) {
  using Asked = std::tuple<void (*)(Backend&), std::string, std::string>;
  static std::set<Asked> sound;
  const Asked question{guard, backend.info().name, planted_fault()};
  if (sound.contains(question)) return;
  guard(backend);
  sound.insert(question);
}

}  // namespace lockstep
