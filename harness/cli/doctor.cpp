// `lockstep doctor`
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/rendezvous/mac.h"
#include "harness/base/options.h"
#include "harness/base/version.h"
#include "harness/case/calibrate.h"
#include "harness/case/calibrate_fp8.h"
#include "harness/case/schedules.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/page/doctor_page.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "harness/run/meeting_key.h"
#include "harness/run/rendezvous_address.h"

namespace lockstep {
namespace {

std::string kernel_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

std::string or_absent(const std::string& text) { return text.empty() ? "absent" : text; }

void print_cuda(const CudaProbe& cuda) {
  if (!cuda.present) {
    std::printf("GPU           none: %s\n", cuda.why.c_str());
    return;
  }
  std::printf("GPU           %d, the first %s (sm_%d)\n", cuda.gpus, cuda.info.name.c_str(),
              cuda.info.compute_capability);
  std::printf(
      "driver        %s\nCUDA          %s\nNCCL          %s\ncuDNN         %s\ncuBLAS        "
      "%s\nNVTX          %s\n",
      or_absent(cuda.info.driver).c_str(), or_absent(cuda.info.cuda).c_str(),
      or_absent(cuda.info.nccl).c_str(), or_absent(cuda.info.cudnn).c_str(),
      or_absent(cuda.info.cublas).c_str(), or_absent(cuda.info.nvtx).c_str());
  const std::string& kernels = cuda.info.copy_engines_off;
  std::printf("exchanges     by %s\n",
              kernels.empty() ? "copy engines, where ranks reach one another on one machine"
                              : ("kernels: " + kernels).c_str());
  const std::string off = cudnn_is_off(cuda.info);
  std::printf("core_attention: cudnn %s\n",
              off.empty() ? ("with cudnn-frontend " + cuda.info.cudnn_frontend).c_str()
                          : ("is off: " + off).c_str());
}

// Ranks are started by any launcher that sets its variables; the library of MPI is not used.
std::string mpi_here() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/mpirun";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return "absent: no mpirun on the PATH";
}

// NVIDIA's Multi-Process Service lets the processes of several workers use a GPU at once, but a
// fault of one of them ends them all.
std::string mps_here() {
  const char* set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = set != nullptr && *set != 0 ? set : "/tmp/nvidia-mps";
  if (::access((folder + "/control").c_str(), F_OK) == 0)
    return "serves at " + folder + ": workers use a GPU at once, and a fault of one ends all";
  return "off: workers take turns on a GPU (nvidia-cuda-mps-control -d starts it)";
}

// Over NCCL each rank has a GPU.
std::string what_cuda_can_run(const CudaProbe& cuda) {
  if (!cuda.present) return "cannot run";
  if (cuda.gpus < 2 || cuda.info.nccl.empty()) return "can run, but no ranks over NCCL";
  return "can run, and up to " + std::to_string(cuda.gpus) + " ranks over NCCL";
}

// Which launcher's variables this process has, and what they would make of it.
std::string launcher_here() {
  try {
    const auto me = launched_here();
    if (!me) return "none: ranks are threads or processes that this program starts";
    return me->launcher + ": process " + std::to_string(me->rank) + " of " +
           std::to_string(me->size) + ", " + std::to_string(me->local_rank) +
           " on this machine, meeting at " + text(rendezvous_address(*me, ""));
  } catch (const RequestError& error) {
    return error.what();
  }
}

// Whether strangers can join the ranks of several machines.
std::string key_here() {
  try {
    return meeting_key(std::getenv).empty()
               ? "none: on a network, who reaches rank 0's port can take a rank's place"
               : "is set";
  } catch (const RequestError& error) {
    return error.what();
  }
}

// Returns whether all sums are the model's. A sum of 288 places takes as many products as 18 dots.
bool calibrate_device_in_fp8(Backend& backend, const Options& options, boost::json::object& found) {
  constexpr std::int64_t kDotsOfASum = 18;
  if (architecture_of(backend.info()) != "sm_90") return true;
  const Fp8Calibration result = calibrate_fp8(backend, options.number("dots") / kDotsOfASum,
                                              static_cast<std::uint64_t>(options.number("seed")));
  found["fp8_calibration"] = to_json(result);
  std::printf(
      "              fp8: %lld sums of 288 products, %lld differ from the model (F %d, groups of "
      "%d, "
      "runs of %d)\n",
      static_cast<long long>(result.sums), static_cast<long long>(result.differences), kFp8Fraction,
      kFp8Group, static_cast<int>(kFp8Run));
  if (result.first) std::printf("%s\n", text(*result.first).c_str());
  return result.differences == 0;
}

// Prints what was found; nothing is compared on an architecture without constants.
ExitStatus calibrate_device(const Options& options, boost::json::object& found) {
  const std::string device = choose_device(options.text("device"));
  const std::unique_ptr<Backend> backend = open_backend(device, {});
  const std::string architecture = architecture_of(backend->info());
  const auto model = constants_of(backend->info());
  if (!model) {
    found["calibration"] =
        boost::json::object{{"architecture", architecture}, {"why", "no constants"}};
    std::printf("calibration   %s: no constants of its tensor core are known\n",
                architecture.c_str());
    return ExitStatus::gave_up;
  }
  const Calibration result = calibrate(*backend, *model, options.number("dots"),
                                       static_cast<std::uint64_t>(options.number("seed")));
  found["calibration"] = to_json(result, architecture, *model);
  std::printf(
      "calibration   %s: %lld dots, %lld differ from the model (F %d, groups of %d, least exponent "
      "%d)\n",
      architecture.c_str(), static_cast<long long>(result.dots),
      static_cast<long long>(result.differences), model->fraction_bits, model->group,
      model->min_exponent);
  if (result.first) std::printf("%s\n", text(*result.first).c_str());
  const bool fp8_holds = calibrate_device_in_fp8(*backend, options, found);
  return result.differences == 0 && fp8_holds ? ExitStatus::held : ExitStatus::violated;
}

}  // namespace

Options doctor_options() {
  Options options("doctor", "", "What this machine has, and what can and cannot run on it.", 0);
  options.device().flag("calibrate",
                        "holds random dots of the device's tensor cores against the model");
  options.number("dots", "with --calibrate: how many, and sums of fp8 for a share of them",
                 1'000'000, 1);
  options.number("seed", "with --calibrate: of the dots", 1, 0);
  options.text("json", "write the findings to this file")
      .text("junit", "write what --calibrate found to this file, for CI")
      .text("html", "write the findings to this page");
  return options;
}

ExitStatus doctor_command(const Words& words) {
  Options options = doctor_options();
  if (!options.parse(words)) return ExitStatus::held;
  const CommandFiles files(options);
  const CudaProbe cuda = probe_cuda();
  const DeviceInfo sim = open_sim()->info();
  const std::string library = library_folder();
  const std::size_t scenarios = library_files().size();

  std::printf("lockstep      %s (%s)\n", version(), revision());
  std::printf("cores         %u\n", std::thread::hardware_concurrency());
  std::printf("kernel module %s\n", or_absent(kernel_driver()).c_str());
  print_cuda(cuda);
  const std::string mpi = mpi_here();
  std::printf("MPI           %s\n", mpi.c_str());
  const std::string mps = mps_here();
  std::printf("MPS           %s\n", mps.c_str());
  std::printf("simulator     %s\n", sim.name.c_str());
  const std::string launcher = launcher_here();
  std::printf("launcher      %s\n", launcher.c_str());
  const std::string key = key_here(), crypto = libcrypto_version();
  std::printf("meeting key   %s\nlibcrypto     %s\n", key.c_str(), crypto.c_str());
  std::printf("library       %s, %zu files with regressions\n\n", library.c_str(), scenarios);
  std::printf("--device sim  can run\n--device cuda %s\n", what_cuda_can_run(cuda).c_str());
  std::printf("--device auto takes %s\n", cuda.present ? "cuda" : "sim");
  boost::json::object found{{"tool", "lockstep"},
                            {"version", version()},
                            {"revision", revision()},
                            {"cuda_present", cuda.present},
                            {"gpus", cuda.gpus},
                            {"cuda", to_json(cuda.info)},
                            {"why", cuda.why},
                            {"mpi", mpi},
                            {"mps", mps},
                            {"sim", to_json(sim)},
                            {"library", library},
                            {"library_files", scenarios},
                            {"launcher", launcher},
                            {"meeting_key", key},
                            {"libcrypto", crypto}};
  const ExitStatus status =
      options.has("calibrate") ? calibrate_device(options, found) : ExitStatus::held;
  CaseResult calibrated;
  calibrated.name = "tensor cores against the model";
  calibrated.numerics = "doctor";
  calibrated.verdict = status == ExitStatus::violated  ? Verdict::violated
                       : status == ExitStatus::gave_up ? Verdict::skipped
                                                       : Verdict::holds;
  if (!options.has("calibrate")) {
    calibrated.verdict = Verdict::skipped;
    calibrated.reason = "--calibrate compares them";
  }
  write_reports(options, junit({calibrated}), found, doctor_page);
  return status;
}

}  // namespace lockstep
