// Which changed calls are called equivalent, where the truth is known: passes before a capture work
// on a dummy pack, and what they make of it nobody reads.
#include "harness/mutate/equivalent_mutant.h"

#include <gtest/gtest.h>

#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

CaseResult judged(const char* fault) {
  ReadResult read = read_scenario_file(library_file("capture-passes"));
  read.scenario.numerics = {Numerics::fp32};
  return judge_equivalence(read.scenario, *device_fault(fault));
}

Verdict verdict(const char* fault) { return judged(fault).verdict; }

TEST(EquivalentMutant, ACallWhoseResultsNobodyReadsMayBeLeftOut) {
  EXPECT_EQ(verdict("drop-op/eager/compute/mamba/gated_norm/gated_norm_backward/7"),
            Verdict::holds);
  EXPECT_EQ(verdict("drop-op/eager/compute/attention/proj/linear_weight_gradient/14"),
            Verdict::holds);
  EXPECT_EQ(verdict("drop-op/eager/compute/mamba/gated_norm/gated_norm_backward/0"),
            Verdict::violated);
}

// The buffer written instead belongs to the same passes, or to a parameter that is trained.
TEST(EquivalentMutant, AWrongBufferMustNotBeReadEither) {
  EXPECT_EQ(verdict("wrong-buffer/eager/compute/mamba/gated_norm/gated_norm_backward/7"),
            Verdict::holds);
  const CaseResult harmful =
      judged("wrong-buffer/eager/compute/attention/proj/linear_weight_gradient/14");
  EXPECT_EQ(harmful.verdict, Verdict::violated);
  EXPECT_EQ(harmful.reason, "linear_weight_gradient has an effect in capture-passes");
}

// No buffer that nobody reads makes up for one that should have been written.
TEST(EquivalentMutant, TheRightBufferMustNotBeMissed) {
  EXPECT_EQ(verdict("wrong-buffer/eager/compute/mamba/gated_norm/gated_norm_backward/0"),
            Verdict::violated);
}

TEST(EquivalentMutant, ACallThatIsNeverMetIsNoEvidence) {
  EXPECT_EQ(verdict("wrong-buffer/eager/compute/mamba/gated_norm/gated_norm_backward/9999"),
            Verdict::broken);
}

}  // namespace
}  // namespace lockstep
