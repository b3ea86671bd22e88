// Random scenarios in fp8 whose ranks exchange gradients, codes and amaxes in one process, over
// shared memory and over sockets: `lockstep train` prints the same losses and digests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "harness/generate/generator.h"
#include "kernels/core/at.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "tests/engine/rendezvous/stores.h"
#include "tests/harness/generate/random_property.h"
#include "tests/harness/run/started_afar.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Two ranks, which shard or not, of one stage or two.
Scenario draw(Choices& c) {
  Scenario s = test::on_one_rank(generate_scenario(c));
  s.parallel.data = 2;
  s.fsdp = {};
  s.fsdp.strategy =
      c.pick<Sharding>({Sharding::optim_grads, Sharding::optim_grads_params, Sharding::no_shard});
  s = test::in_fp8(s, c);
  s.fp8.param_gather = s.fsdp.strategy != Sharding::no_shard && c.one_in(2);
  s.fp8.weight_cache = default_weight_cache(s);
  if (s.blocks().size() > 1 && c.one_in(3)) {
    s.parallel.pipeline = s.parallel.group = 2;
    s.training.in_flight = scheduled_depth(s);
  }
  s.training.resume_at.clear();
  s.checker = {};
  s.expect = {};
  test::leave_out_what_is_refused(s);
  return s;
}

class Fp8Transports : public testing::Test {
 protected:
  // The losses and digests of the steps; "" where the scenario cannot run.
  std::string trained(Scenario s, Transport transport) const {
    s.parallel.transport = transport;
    if (!check_legality(s).empty() || !check_built(s).empty()) return "";
    const Ran ran = run_lockstep("train --device sim --quiet --digest-every 1 " + file(s));
    EXPECT_EQ(ran.status, 0) << ran.err << to_yaml(s);
    return steps_of(ran.out);
  }
  // A process on a machine of its own for each rank.
  std::string trained_afar(Scenario s) const {
    s.parallel.transport = Transport::automatic;
    const std::string words = "--deadline 30 " + file(s);
    const std::uint16_t port = test::free_port();
    const auto size = static_cast<int>(ranks_of_run(s));
    std::vector<std::unique_ptr<Started>> ranks;
    for (int rank = size - 1; rank >= 0; --rank)
      ranks.push_back(started_afar(words, rank, size, port, said_by(rank)));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(at(ranks, size - 1 - rank)->exit_status(), 0) << slurp(said_by(rank)) << to_yaml(s);
    }
    return steps_of(slurp(said_by(0)));
  }

 private:
  std::string said_by(int rank) const { return folder_ / std::to_string(rank); }
  std::string file(const Scenario& s) const { return folder_.file("drawn.yaml", to_yaml(s)); }
  static std::string steps_of(const std::string& out) {
    std::istringstream lines(out);
    std::string steps;
    for (std::string line; std::getline(lines, line);)
      steps += line.starts_with("step ") ? line + "\n" : "";
    return steps;
  }
  TemporaryFolder folder_;
};

TEST_F(Fp8Transports, HaveTheSameBits) {
  const int wanted = test::scenarios_asked_for(8);
  int compared = 0, delayed = 0;
  for (std::uint64_t seed = 1; compared < wanted && seed < 40ull * wanted; ++seed) {
    Choices c(seed);
    const Scenario s = draw(c);
    const std::string local = trained(s, Transport::local);
    if (local.empty()) continue;
    EXPECT_THAT(local, HasSubstr("  weights "));
    EXPECT_EQ(trained(s, Transport::shm), local) << to_yaml(s);
    EXPECT_EQ(trained_afar(s), local) << to_yaml(s);
    ++compared;
    delayed += s.fp8.recipe == Fp8Recipe::delayed;
  }
  std::printf("nothing depends on transports (fp8): %d compared on sim\n", compared);
  EXPECT_EQ(compared, wanted);
  EXPECT_GT(8 * delayed, wanted);
}

// Lines of steps tell scaling state too: a margin moves exponents and the bits that follow.
TEST_F(Fp8Transports, AreComparedByWhatAnExponentMoves) {
  int moved = 0;
  for (std::uint64_t seed = 1; moved == 0 && seed < 100; ++seed) {
    Choices c(seed);
    Scenario s = draw(c);
    if (s.fp8.recipe != Fp8Recipe::delayed || s.fp8.margin != 0) continue;
    const std::string before = trained(s, Transport::shm);
    s.fp8.margin = 1;
    moved += !before.empty() && before != trained(s, Transport::local);
  }
  EXPECT_EQ(moved, 1);
}

}  // namespace
}  // namespace lockstep
