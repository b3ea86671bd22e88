// The guard refuses a processor in another mode, and a device that computes something else.
#include "harness/case/guard.h"

#include <gmock/gmock.h>
#include <xmmintrin.h>

#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"
#include "kernels/diagnostics/guard.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
constexpr unsigned kDown = 0x2000, kUp = 0x4000, kTowardZero = 0x6000;

// The processor's mode for as long as this lives.
class Mode {
 public:
  explicit Mode(unsigned set) : before_(_mm_getcsr()) { _mm_setcsr(before_ | set); }
  ~Mode() { _mm_setcsr(before_); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  unsigned before_;
};

std::string complaint_in(unsigned mode) {
  const Mode set(mode);
  return host_complaint();
}

TEST(Guard, FindsNothingOnASoundProcessor) { EXPECT_EQ(host_complaint(), ""); }

TEST(Guard, SeesEveryOtherMode) {
  EXPECT_THAT(complaint_in(kFlushResults), HasSubstr("flushes subnormal results"));
  EXPECT_THAT(complaint_in(kFlushOperands), HasSubstr("subnormal operands"));
  EXPECT_THAT(complaint_in(kFlushResults | kFlushOperands), HasSubstr("subnormal"));
  EXPECT_THAT(complaint_in(kDown), HasSubstr("rounds down"));
  EXPECT_THAT(complaint_in(kUp), HasSubstr("rounds up"));
  EXPECT_THAT(complaint_in(kTowardZero), HasSubstr("toward zero"));
}

TEST(Guard, RefusesEveryCommandWithTheStatusOfABrokenWorld) {
  for (const unsigned mode : {kFlushResults, kFlushOperands, kDown, kUp, kTowardZero}) {
    for (const Words& words :
         {Words{"doctor"}, Words{"verify", "--device", "sim"}, Words{"bench"}}) {
      const Mode set(mode);
      EXPECT_EQ(run_command_line(words), 3);
    }
  }
}

TEST(Guard, AsksTheDeviceForItsFingerprint) {
  const std::unique_ptr<Backend> sim = open_sim();
  guard_device(*sim);
  plant_fault("device-flushes-subnormals");
  std::string reason;
  try {
    guard_device(*sim);
  } catch (const WorldError& error) {
    reason = error.what();
  }
  plant_fault("");
  EXPECT_THAT(reason, HasSubstr("simulated device"));
  EXPECT_THAT(reason, HasSubstr("fma has other bits than version 1"));
}

TEST(Guard, AsksTheTensorCoresBeforeBf16IsJudged) {
  const std::unique_ptr<Backend> sim = open_sim();
  guard_tensor_cores(*sim);
  plant_fault("tensor-core-drops-a-product");
  EXPECT_THROW(guard_tensor_cores(*sim), WorldError);
  plant_fault("");
}

TEST(Guard, TakesTheSimulatedDeviceForFp8) { EXPECT_NO_THROW(guard_fp8(*open_sim())); }

int asked;
void count_question(Backend& backend) { asked += !backend.info().name.empty(); }
void refuse(Backend&) { throw WorldError("refused"); }

TEST(Guard, AsksADeviceOnceAProcessAndAgainUnderAnotherFault) {
  const std::unique_ptr<Backend> sim = open_sim();
  asked = 0;
  for (int i = 0; i < 3; ++i) once_a_process(count_question, *open_sim());
  EXPECT_EQ(asked, 1);
  plant_fault("tensor-core-drops-a-product");
  once_a_process(count_question, *sim);
  EXPECT_EQ(asked, 2);
  plant_fault("");
  once_a_process(count_question, *sim);
  EXPECT_EQ(asked, 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_THROW(once_a_process(refuse, *sim), WorldError);  // A refusal is not kept.
}

// The two vectors of the contract, arithmetic.md 4.
TEST(Guard, TheFingerprintsErfIsTheContracts) {
  EXPECT_EQ(bits(erf(from_bits(0x3e99999a))), 0x3ea841c5u);
  EXPECT_EQ(bits(erf(from_bits(0xbfc00000))), 0xbf7752abu);
}

}  // namespace
}  // namespace lockstep
