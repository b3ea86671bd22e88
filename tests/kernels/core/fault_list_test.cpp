// The list of planted faults against the sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// The list names the fault points that the sources have, no more and no fewer.
TEST(Faults, AreListed) {
  std::vector<std::string> found, listed = kernel_faults();
  const std::regex point("fault\\(\"([a-z0-9-]+)\"\\)");
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_ROOT "/kernels/host")) {
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator it(text.begin(), text.end(), point), end; it != end; ++it) found.push_back((*it)[1]);
  }
  std::sort(found.begin(), found.end());
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(found, listed);
}

}  // namespace
}  // namespace lockstep
