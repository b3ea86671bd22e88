#include "harness/device_choice.h"

#include "harness/result_json.h"
#include "harness/worker.h"

namespace lockstep {
namespace {

constexpr double kProbeTimeout = 60;

std::string probe_here() {
  boost::json::object found;
  try {
    CaseResult carrier;  // Its JSON form holds a DeviceInfo and a reason.
    carrier.device = open_cuda()->info();
    found = to_json(carrier);
  } catch (const std::exception& error) {
    CaseResult carrier;
    carrier.verdict = Verdict::broken;
    carrier.reason = error.what();
    found = to_json(carrier);
  }
  return boost::json::serialize(found);
}

}  // namespace

CudaProbe probe_cuda() {
  const ChildEnd end = run_in_child(probe_here, kProbeTimeout);
  if (!end.finished) return {.present = false, .info = {}, .why = "opening CUDA failed: " + end.last_words};
  const CaseResult carrier = result_from_json(boost::json::parse(end.output));
  return {carrier.verdict == Verdict::holds, carrier.device, carrier.reason};
}

std::string choose_device(const std::string& asked) {
  if (asked == "sim") return "sim";
  const CudaProbe probe = probe_cuda();
  if (probe.present) return "cuda";
  if (asked == "cuda") throw NoDevice("no CUDA device: " + probe.why);
  return "sim";
}

}  // namespace lockstep
