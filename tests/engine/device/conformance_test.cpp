// Programs without races mean the same under every schedule of the simulated device.
#include <set>

#include "tests/engine/device/random_program.h"

namespace lockstep::test {
namespace {

TEST(Conformance, EverySchedulePolicyAgreesOnProgramsWithoutRaces) {
  std::set<std::string> codes, calls;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const std::vector<std::string> program =
        RandomProgram(open_sim({.policy = Policy::program}), seed).run(60);
    for (const std::string& line : program) {
      codes.insert(line.substr(line.find(": ") + 1, line.find(';') - line.find(": ")));
      calls.insert(line.substr(0, line.find(": ")));
    }
    for (const Policy policy : {Policy::lazy, Policy::random, Policy::pct}) {
      const SimOptions options{.policy = policy, .seed = seed, .depth = 3};
      ASSERT_EQ(first_difference(program, RandomProgram(open_sim(options), seed).run(60)), "")
          << "seed " << seed;
    }
  }
  for (const char* code : {"IllegalState", "StreamCaptureUnsupported", "StreamCaptureInvalidated",
                           "StreamCaptureMerge", "InvalidValue", "StreamCaptureUnmatched",
                           "StreamCaptureUnjoined", "StreamCaptureIsolation", "CapturedEvent"}) {
    EXPECT_TRUE(codes.contains(" cudaError" + std::string(code) + ";")) << code << " was never met";
  }
  for (const char* call : {"create stream", "destroy stream", "renew event 0", "destroy graph"})
    EXPECT_TRUE(calls.contains(call)) << call << " was never drawn";
}

}  // namespace
}  // namespace lockstep::test
