#include "harness/base/machine_memory.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Lowers `memory` to the number that a file holds. "max" and a file that is absent are no limit.
void take_limit(const fs::path& file, MachineMemory& memory) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text)) return;
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes >= memory.bytes) return;
  memory = {bytes, "the control group's limit"};
}

// A limit of a group holds for all that is in it, so those of its parents count too. A container
// may see its own group as the root.
void take_limits(const fs::path& mount, const std::string& group, const char* file,
                 MachineMemory& memory) {
  take_limit(mount / file, memory);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    if (part == "..") return;
    folder /= part;
    take_limit(folder / file, memory);
  }
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory;
  std::ifstream info(root + "/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kilobytes = 0; info >> name >> kilobytes; std::getline(info, unit)) {
    if (name == "MemAvailable:") memory = {kilobytes * 1024, "MemAvailable"};
  }
  std::ifstream groups(root + "/proc/self/cgroup");
  // Lines are "0::/path" (version 2) and "4:memory:/path".
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controller.empty()) take_limits(root + "/sys/fs/cgroup", group, "memory.max", memory);
    if (controller == "memory")
      take_limits(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", memory);
  }
  return memory;
}

}  // namespace lockstep
