// `lockstep doctor`
#include <cstdio>
#include <fstream>
#include <thread>

#include "harness/commands.h"
#include "harness/device_choice.h"
#include "harness/library.h"
#include "harness/options.h"
#include "harness/result_json.h"
#include "harness/version.h"
#include "harness/write_file.h"

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
  std::printf("GPU           %s (sm_%d)\n", cuda.info.name.c_str(), cuda.info.compute_capability);
  std::printf("driver        %s\nCUDA          %s\nNCCL          %s\ncuDNN         %s\ncuBLAS        %s\n",
              or_absent(cuda.info.driver).c_str(), or_absent(cuda.info.cuda).c_str(), or_absent(cuda.info.nccl).c_str(),
              or_absent(cuda.info.cudnn).c_str(), or_absent(cuda.info.cublas).c_str());
}

}  // namespace

ExitStatus doctor_command(const Words& words) {
  Options options("doctor", "", "What this machine has, and what can and cannot run on it.", 0);
  options.text("json", "write the findings to this file");
  if (!options.parse(words)) return ExitStatus::held;
  const CudaProbe cuda = probe_cuda();
  const DeviceInfo sim = open_sim()->info();
  const std::string library = library_folder();
  const std::size_t scenarios = scenario_files(library).size();

  std::printf("lockstep      %s (%s)\n", version(), revision());
  std::printf("cores         %u\n", std::thread::hardware_concurrency());
  std::printf("kernel module %s\n", or_absent(kernel_driver()).c_str());
  print_cuda(cuda);
  std::printf("simulator     %s\n", sim.name.c_str());
  std::printf("library       %s, %zu files\n\n", library.c_str(), scenarios);
  std::printf("--device sim  can run\n--device cuda %s\n", cuda.present ? "can run" : "cannot run");
  std::printf("--device auto takes %s\n", cuda.present ? "cuda" : "sim");
  if (options.has("json")) {
    const boost::json::object found{
        {"tool", "lockstep"},           {"version", version()},       {"revision", revision()},
        {"cuda_present", cuda.present}, {"cuda", to_json(cuda.info)}, {"why", cuda.why},
        {"sim", to_json(sim)},          {"library", library},         {"library_files", scenarios}};
    write_file(options.text("json"), boost::json::serialize(found) + "\n");
  }
  return ExitStatus::held;
}

}  // namespace lockstep
