#include "harness/run/device_choice.h"

#include <cstdio>
#include <cstdlib>

#include "harness/base/subprocess.h"
#include "harness/report/result_json.h"
#include "harness/run/worker.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

constexpr double kProbeTimeout = 60;

std::string probe_here(Probe how) {
  boost::json::object found;
  try {
    const std::vector<DeviceInfo> gpus = cuda_devices();
    CaseResult carrier;  // Its JSON form holds a DeviceInfo and a reason.
    // Where there is none, opening says why.
    carrier.device = how == Probe::looks && !gpus.empty() ? gpus.front() : open_cuda()->info();
    found = to_json(carrier);
    found["gpus"] = std::ssize(gpus);
  } catch (const std::exception& error) {
    CaseResult carrier;
    carrier.verdict = Verdict::broken;
    carrier.reason = error.what();
    found = to_json(carrier);
  }
  return boost::json::serialize(found);
}

const CudaProbe& probed_once() {
  static const CudaProbe probe = probe_cuda(Probe::looks);
  return probe;
}

std::string lacking_ranks(const Scenario& scenario, const std::string& device) {
  const std::int64_t ranks = ranks_of_run(scenario);
  if (ranks == 1) return "";
  const bool captured = captures_calls(scenario);
  if (scenario.parallel.transport == Transport::shm && captured && device == "cuda") {
    return "parallel.transport: shm exchanges over the host, which a graph on a GPU cannot hold";
  }
  if (scenario.parallel.transport != Transport::nccl) return "";
  const std::string asked =
      "parallel.transport: nccl asks for " + std::to_string(ranks) + " GPUs and NCCL";
  if (device != "cuda") return asked + ", and this is the simulated device";
  const CudaProbe& probe = probed_once();
  if (probe.gpus < ranks) return asked + ", and here are " + std::to_string(probe.gpus) + " GPUs";
  return probe.info.nccl.empty() ? asked + ", and libnccl.so.2 is not here" : "";
}

}  // namespace

CudaProbe probe_cuda(Probe how) {
  const ChildEnd end = run_in_child([how] { return probe_here(how); }, kProbeTimeout);
  if (!end.finished)
    return {.present = false, .info = {}, .why = "opening CUDA failed: " + end.last_words};
  const boost::json::object found = boost::json::parse(end.output).as_object();
  const CaseResult carrier = result_from_json(found);
  const boost::json::value* gpus = found.if_contains("gpus");
  return {.present = carrier.verdict == Verdict::holds,
          .info = carrier.device,
          .gpus = gpus == nullptr ? 0 : gpus->to_number<int>(),
          .why = carrier.reason};
}

int gpus_here() { return probed_once().gpus; }

void leave_two_channels() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 0); }

std::string cudnn_is_off(const DeviceInfo& info) {
  if (info.cudnn_frontend.empty()) return "built without cudnn-frontend";
  if (info.cudnn.empty()) return "libcudnn.so.9 is not found";
  return "";
}

std::string choose_device(const std::string& asked) {
  if (asked == "sim") return "sim";
  const CudaProbe& probe = probed_once();
  if (probe.present) return "cuda";
  if (asked == "cuda")
    throw NoDevice("no CUDA device: " + probe.why + "; --device sim runs on the simulated device");
  std::fprintf(stderr, "lockstep: the simulated device runs, since there is no GPU: %s\n",
               probe.why.c_str());
  return "sim";
}

std::string lacking(const Scenario& scenario, const std::string& device) {
  const std::string lacks = lacking_ranks(scenario, device);
  if (!lacks.empty() || device != "cuda" || scenario.model.core_attention != CoreAttention::cudnn)
    return lacks;
  const std::string off = cudnn_is_off(probed_once().info);
  return off.empty() ? "" : "core_attention: cudnn is off: " + off;
}

}  // namespace lockstep
