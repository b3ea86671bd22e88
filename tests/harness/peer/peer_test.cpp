// PyTorch's step beside ours, with a process in its place that says what the test wants.
#include "harness/peer/peer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "harness/base/errors.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

Scenario tiny() {
  Scenario s;
  s.numerics = {Numerics::bf16};
  s.model.pattern = "M-*";
  s.data.pack_length = 32;
  s.data.documents = {{{5, 11}}, {{30, 2}}};
  s.training.microbatches = 1;
  s.training.in_flight = 1;
  return s;
}

// `begin` and `steps`: what it replies beside the id, as Python. It checks what it is asked.
std::string stand_in(const TemporaryFolder& folder, const std::string& begin,
                     const std::string& steps) {
  const std::string file =
      folder.file("stand_in",
                  "#!/usr/bin/env python3\n"
                  "import json, os, sys\n"
                  "assert sys.argv[1:] == ['-m', 'lockstep_adapter.torch_step'], sys.argv\n"
                  "asked, told = (int(fd) for fd in os.environ['LOCKSTEP_ENGINE_FDS'].split(','))\n"
                  "asked, told = open(asked), open(told, 'w')\n"
                  "turns = 0\n"
                  "for line in asked:\n"
                  "    request = json.loads(line)\n"
                  "    if request['op'] == 'begin':\n"
                  "        assert request['model']['pattern'] == 'M-*' and request['rows'] == 32\n"
                  "        packs = request['packs']\n"
                  "        reply = " +
                      begin +
                      "\n"
                      "    else:\n"
                      "        turns += 1\n"
                      "        assert all(step in packs for step in request['packs']), request\n"
                      "        reply = " +
                      steps +
                      "\n"
                      "    told.write(json.dumps({'id': request['id'], **reply}) + '\\n')\n"
                      "    told.flush()\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file;
}

constexpr char kModes[] =
    "{'torch': '2.11', 'device': 'cpu', 'modes': [{'mode': 'graph', 'bytes': 8}, "
    "{'mode': 'deterministic', 'bytes': 9}, {'mode': 'eager', 'bytes': 0, 'not_run': 'why'}]}";
// The first step of a turn is the slow one, which does not count.
constexpr char kSteps[] =
    "{'seconds': [9] + [0.25 if request['mode'] == 'graph' else 0.5] * (len(request['packs']) - "
    "1)}";

PeerTimes times_with(const char* begin, const char* steps) {
  const TemporaryFolder folder;
  return time_beside_peer(tiny(), "sim", stand_in(folder, begin, steps), 0);
}

std::string failure_with(const char* begin, const char* steps) {
  try {
    times_with(begin, steps);
  } catch (const WorldError& failure) {
    return failure.what();
  }
  return "no failure";
}

TEST(BenchPeer, BothSidesHaveTenStepsAndTheRatioIsOfTheFastestMedians) {
  const PeerTimes times = times_with(kModes, kSteps);
  std::string names;
  for (const PeerRow& row : times.rows) {
    names += row.side + " " + row.mode + ", ";
    if (row.mode == "eager" && row.side == kPeerSide) {
      EXPECT_EQ(row.not_run, "why");
      EXPECT_TRUE(row.times.empty());
      continue;
    }
    EXPECT_EQ(row.not_run, "");
    EXPECT_EQ(row.times.size(), 10u) << row.mode;
    for (const double seconds : row.times) EXPECT_LT(seconds, 9) << row.mode;
  }
  EXPECT_EQ(names,
            "lockstep eager, lockstep partial, lockstep full_iteration, PyTorch graph, "
            "PyTorch deterministic, PyTorch eager, ");
  EXPECT_EQ(times.version, "2.11");
  const auto any = [](const std::string&) { return true; };
  EXPECT_EQ(fastest_median(times, kPeerSide, any), 0.25);
  EXPECT_EQ(
      fastest_median(times, kPeerSide, [](const std::string& mode) { return mode[0] == 'd'; }),
      0.5);
  EXPECT_EQ(
      fastest_median(times, kPeerSide, [](const std::string& mode) { return mode[0] == 'e'; }), 0);
  EXPECT_GT(fastest_median(times, kOwnSide, any), 0);
}

TEST(BenchPeer, WhatIsMissingIsAFailureOfTheEnvironment) {
  EXPECT_NE(failure_with("sys.exit('no PyTorch here')", kSteps).find("no PyTorch here"),
            std::string::npos);
  EXPECT_NE(failure_with("{'failed': 'out of memory'}", kSteps).find("out of memory"),
            std::string::npos);
  EXPECT_NE(failure_with(kModes, "{'failed': 'later'}").find("later"), std::string::npos);
  EXPECT_NE(failure_with(kModes, "{'seconds': []}").find("3 steps"), std::string::npos);
  // A GPU there and the simulator here say nothing of each other.
  EXPECT_NE(failure_with("{'torch': '2', 'device': 'NVIDIA H100', 'modes': []}", kSteps)
                .find("PyTorch computes on NVIDIA H100, lockstep on sim"),
            std::string::npos);
  try {
    time_beside_peer(tiny(), "sim", "/no/such/python", 0);
    ADD_FAILURE() << "no failure";
  } catch (const WorldError& failure) {
    EXPECT_NE(std::string(failure.what()).find("/no/such/python"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
