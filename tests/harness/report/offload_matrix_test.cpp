// The table of docs/offloading.md is the one that the rules make.
#include "harness/report/offload_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/tree.h"

namespace lockstep {
namespace {

TEST(OffloadMatrix, IsTheOneInTheDocumentation) {
  std::ifstream file(root_path() + "/docs/offloading.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr(offload_matrix()))
      << "`lockstep describe --offload-matrix` prints it";
}

TEST(OffloadMatrix, HasEveryKindOfAnswer) {
  const std::string matrix = offload_matrix();
  for (const char* cell : {" yes |", " late |", " L26 |", " L19 |", " L20 |"}) {
    EXPECT_THAT(matrix, testing::HasSubstr(cell));
  }
}

}  // namespace
}  // namespace lockstep
