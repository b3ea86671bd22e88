#include "engine/cuda/machine.h"

#include <fstream>

namespace lockstep {

const std::string& this_machine() {
  static const std::string boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
  }();
  return boot;
}

}  // namespace lockstep
