// Strangers who reach the port use up neither the memory nor the time nor the files of rank 0, and
// what goes wrong on its own thread is told where a rank waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/raw_peer.h"
#include "tests/engine/rendezvous/stores.h"

namespace {

// Memory for more than this is refused, as on a machine that has none.
std::atomic<std::size_t> most_memory = std::numeric_limits<std::size_t>::max();

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = bytes > most_memory ? nullptr : std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > most_memory ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using Kind = Message::Kind;
using Clock = std::chrono::steady_clock;

constexpr double kDeadline = 20;
const RunIdentity kRun{.name = "job"};

Bytes head_that_announces(Kind kind, std::uint64_t bytes) {
  Bytes head = frame_of({.kind = kind, .from = 1, .number = 2});
  std::memcpy(head.data() + 16, &bytes, sizeof bytes);
  return head;
}

TEST(Strangers, AreClosedWhenTheyAnnounceMuch) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  for (const auto& [kind, bytes] : {std::pair(Kind::hello, 33), std::pair(Kind::proof, 4097),
                                    std::pair(Kind::post, 1 << 20), std::pair(Kind::welcome, 1)}) {
    const RawPeer peer = RawPeer::connected(at.port);
    EXPECT_TRUE(peer.say(head_that_announces(kind, static_cast<std::uint64_t>(bytes))));
    EXPECT_TRUE(peer.is_closed_within(2000)) << static_cast<int>(kind);
  }
}

TEST(Strangers, AreClosedWhenTheySayNothing) {
  const TcpAddress at{"127.0.0.1", free_port()};
  TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  const RawPeer silent = RawPeer::connected(at.port), slow = RawPeer::connected(at.port);
  slow.say(head_that_announces(Kind::hello, 32));
  EXPECT_TRUE(silent.is_closed_within(8000));
  EXPECT_TRUE(slow.is_closed_within(2000));
  EXPECT_NO_THROW(TcpStore(at, kRun, 1, 2, kDeadline));
}

// 4 ranks * 2 + 16 may wait.
TEST(Strangers, GiveWayToThoseWhoComeLater) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  std::vector<RawPeer> peers;
  for (int i = 0; i < 60; ++i) peers.push_back(RawPeer::connected(at.port));
  EXPECT_TRUE(peers.front().is_closed_within(1000));
  EXPECT_FALSE(peers.back().is_closed_within(1000));
  EXPECT_NO_THROW(TcpStore(at, kRun, 1, 2, kDeadline));
}

TEST(Strangers, AreNotHeardAfterARefusal) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  RawPeer peer = RawPeer::connected(at.port);
  EXPECT_TRUE(peer.prove(1, 2, {.name = "guess"}));
  EXPECT_TRUE(peer.hear(Kind::refused));
  peer.say({.kind = Kind::hello, .from = 1, .number = 2, .body = zeros(sizeof(Digest))});
  EXPECT_TRUE(peer.is_closed_within(2000));
  EXPECT_NO_THROW(TcpStore(at, kRun, 1, 2, kDeadline));
}

// Whether somebody listens at 127.0.0.1.
bool is_listening(std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is = ::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(file);
  return is;
}

TEST(Strangers, FindNobodyListeningWhenAllRanksAreThere) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  EXPECT_TRUE(is_listening(at.port));
  const TcpStore rank_1(at, kRun, 1, 2, kDeadline);
  EXPECT_FALSE(is_listening(at.port));
}

TEST(Strangers, FindRankZeroWhereItWasToldAlone) {
  const TcpAddress at{"127.0.0.2", free_port()};
  const TcpStore rank_0(at, kRun, 0, 2, kDeadline);
  EXPECT_FALSE(is_listening(at.port));
  EXPECT_NO_THROW(TcpStore(at, kRun, 1, 2, kDeadline));
}

TEST(Strangers, RankZeroListensNowhereWithoutAnAddressOfThisMachine) {
  try {
    const TcpStore rank_0({"192.0.2.1", free_port()}, kRun, 0, 2, kDeadline);
    ADD_FAILURE() << "it listens";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(" of 192.0.2.1: Cannot assign requested address; with "
                                        "--meeting 0.0.0.0:PORT it listens at all addresses"));
  }
}

double seconds_of_this_process() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// The system takes no connection while files are lacking: rank 0 waits without using a core, and
// the rank comes when the strangers have been closed.
TEST(Strangers, WhoTakeAllFilesCostNoTime) {
  const TcpAddress at{"127.0.0.1", free_port()};
  Processes rank_0(1, [&](int) {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    const rlimit few{16, 16};
    ::setrlimit(RLIMIT_NOFILE, &few);
    store.all_gather_object({.sequence = 0}, "");
    const double used = seconds_of_this_process();
    if (used > 1) throw std::runtime_error("it took " + std::to_string(used) + " s of a core");
    return 0;
  });
  std::vector<RawPeer> peers;
  for (int i = 0; i < 24; ++i) peers.push_back(RawPeer::connected(at.port));
  TcpStore rank_1(at, kRun, 1, 2, kDeadline);
  rank_1.all_gather_object({.sequence = 0}, "");
  const Ended ended = rank_0.wait(0);
  EXPECT_EQ(ended.status, 0) << ended.words;
}

TEST(Strangers, WhoFillTheMemoryEndTheRunWithASentence) {
  const TcpAddress at{"127.0.0.1", free_port()};
  Processes rank_0(1, [&](int) {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    most_memory = std::size_t{512} << 10;
    store.all_gather_object({.sequence = 0}, "");
    return 0;
  });
  RawPeer peer = RawPeer::connected(at.port);
  EXPECT_TRUE(peer.join(1, 2, kRun));
  peer.say({.kind = Kind::post,
            .from = 1,
            .number = 1,
            .call = {.sequence = 0},
            .body = zeros(1 << 20)});
  const Ended ended = rank_0.wait(0);
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.words, "out of memory");
}

}  // namespace
}  // namespace lockstep::test
