// What a rank sends to another, and groups of ranks: right bytes over every transport, whatever
// order the ways have, and a clear report when the ranks do not mean the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/ranks.h"
#include "engine/comm/store_communicator.h"
#include "engine/rendezvous/group_store.h"
#include "harness/checker/checker.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/stores.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using Bits = std::vector<unsigned char>;

constexpr double kDeadline = 20;
constexpr const char* kPurposes[] = {"one", "another"};

struct Transfer {
  int from, to, way;
  std::size_t bytes;
};

Bits contents(const Transfer& transfer, std::size_t number) {
  Bits bits(transfer.bytes);
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = static_cast<unsigned char>(i * 7 + number * 31);
  return bits;
}

// Makes a rank's part of the transfers, which are in an order that some run could have. What is
// received for one purpose is received before what came earlier for the other.
std::string run(const std::vector<Transfer>& transfers, Communicator& ranks, Device& device) {
  const Stream stream(device, "transfers");
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<std::pair<Transfer, std::size_t>> received;
  std::vector<void*> places;
  int counts[2][8][8] = {};
  const auto name = [&](const Transfer& t) -> CollectiveName {
    return {kPurposes[t.way], t.way, counts[t.way][t.from][t.to]++, 5};
  };
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    if (t.from != ranks.rank()) continue;
    const Bits bits = contents(t, i);
    buffers.push_back(std::make_unique<DeviceBuffer>(device, std::max<std::size_t>(1, t.bytes)));
    if (t.bytes > 0)
      stream.copy(buffers.back()->data(), bits.data(), t.bytes, CopyKind::host_to_device);
    stream.synchronize();
    ranks.send(stream, name(t), buffers.back()->data(), t.bytes, t.to);
  }
  for (const int way : {1, 0}) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      if (t.to != ranks.rank() || t.way != way) continue;
      buffers.push_back(std::make_unique<DeviceBuffer>(device, std::max<std::size_t>(1, t.bytes)));
      ranks.receive(stream, name(t), buffers.back()->data(), t.bytes, t.from);
      received.emplace_back(t, i);
      places.push_back(buffers.back()->data());
    }
  }
  stream.synchronize();
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto& [t, number] = received[i];
    Bits got(t.bytes);
    if (t.bytes > 0) stream.copy(got.data(), places[i], t.bytes, CopyKind::device_to_host);
    stream.synchronize();
    if (got != contents(t, number)) return "transfer " + std::to_string(number) + " differs";
  }
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer != ranks.rank()) ranks.await_sent(stream, peer);
  }
  stream.synchronize();
  ranks.barrier();
  return "";
}

std::vector<Transfer> any_transfers(int ranks) {
  const int count = *rc::gen::inRange(0, 12);
  std::vector<Transfer> list;
  for (int i = 0; i < count; ++i) {
    const int from = *rc::gen::inRange(0, ranks);
    const int to = (from + *rc::gen::inRange(1, ranks)) % ranks;
    list.push_back({from, to, *rc::gen::inRange(0, 2),
                    *rc::gen::element<std::size_t>(0, 1, 100, 16'384, 16'385, 70'000)});
  }
  return list;
}

RC_GTEST_PROP(Transfers, ArriveWholeBetweenThreads, ()) {
  const int ranks = *rc::gen::inRange(2, 5);
  const std::vector<Transfer> transfers = any_transfers(ranks);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Checker checker({.stop = false, .mutation = "", .dropped = {}});
  Device device(open_sim({.seed = seed, .trace = nullptr}), &checker);
  std::string differ;
  run_ranks(device, ranks, seed,
            [&](Communicator& communicator) { differ += run(transfers, communicator, device); });
  RC_ASSERT(differ == "");
  for (const Hazard& hazard : checker.hazards()) RC_FAIL(text(hazard));
}

RC_GTEST_PROP(Transfers, ArriveWholeBetweenProcesses, ()) {
  const int ranks = *rc::gen::inRange(2, 5);
  const std::vector<Transfer> transfers = any_transfers(ranks);
  const Stores stores(*rc::gen::element(Over::memory, Over::network), ranks);
  Processes processes(ranks, [&](int rank) {
    const auto store = stores.join(rank, kDeadline);
    Device device(open_sim({}));
    const auto communicator = make_store_communicator(device, *store);
    const std::string differ = run(transfers, *communicator, device);
    if (!differ.empty()) throw std::runtime_error(differ);
    return 0;
  });
  for (const Ended& ended : processes.end()) {
    if (ended.status != 0) RC_FAIL(std::to_string(ended.status) + " " + ended.words);
  }
}

// Runs `body` on two ranks, as threads or processes; what either throws.
std::string thrown(bool threads,
                   const std::function<void(Communicator&, const Stream&, void*)>& body,
                   double deadline = kDeadline) {
  const auto with_memory = [&](Communicator& ranks, Device& device) {
    const Stream stream(device, "transfers");
    const DeviceBuffer memory(device, 64);
    stream.fill(memory.data(), 1, 64);
    body(ranks, stream, memory.data());
    stream.synchronize();
    ranks.barrier();
  };
  if (threads) {
    Device device(open_sim({}));
    try {
      run_ranks(device, 2, 1, [&](Communicator& ranks) { with_memory(ranks, device); });
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  const Stores stores(Over::memory, 2);
  Processes processes(2, [&](int rank) {
    const auto store = stores.join(rank, deadline);
    Device device(open_sim({}));
    with_memory(*make_store_communicator(device, *store), device);
    return 0;
  });
  std::string words;
  for (const Ended& ended : processes.end()) words += ended.words;
  return words;
}

TEST(Transfers, AreComparedBeforeTheirDataAreTrusted) {
  for (const bool threads : {true, false}) {
    const auto meant = [&](const CollectiveName& other, std::size_t bytes) {
      return thrown(threads, [&](Communicator& ranks, const Stream& stream, void* memory) {
        if (ranks.rank() == 0) ranks.send(stream, {"activations", 2, 3, 77}, memory, 32, 1);
        if (ranks.rank() == 1) ranks.receive(stream, other, memory, bytes, 0);
      });
    };
    EXPECT_EQ(meant({"activations", 2, 3, 77}, 32), "");
    EXPECT_THAT(
        meant({"activations", 2, 4, 77}, 32),
        HasSubstr("rank 1 send of activations of piece 2, microbatch 4, 32 bytes, documents "
                  "000000000000004d; rank 0 send of activations of piece 2, microbatch 3, 32"));
    EXPECT_THAT(meant({"activations", 2, 3, 78}, 32), HasSubstr("documents 000000000000004e"));
    EXPECT_THAT(meant({"activations", 2, 3, 77}, 16), HasSubstr("microbatch 3, 16 bytes"));
  }
}

TEST(Transfers, ThatNobodySendsAreMissed) {
  const auto waits = [](Communicator& ranks, const Stream& stream, void* memory) {
    if (ranks.rank() == 1) ranks.receive(stream, {"gradients", 4, 2}, memory, 32, 0);
  };
  EXPECT_THAT(thrown(true, waits), HasSubstr("rank 1 waits in send of gradients of piece 4, "
                                             "microbatch 2, 32 bytes"));
  EXPECT_THAT(thrown(false, waits, 0.3), HasSubstr("send of gradients of piece 4, microbatch 2"));
}

TEST(Transfers, MayBeWaitedForBeforeTheirMemoryIsWritten) {
  for (const bool waits : {true, false}) {
    Checker checker({.stop = false, .mutation = "", .dropped = {}});
    Device device(open_sim({}), &checker);
    run_ranks(device, 2, 1, [&](Communicator& ranks) {
      const Stream stream(device, "transfers");
      const DeviceBuffer memory(device, 64);
      stream.fill(memory.data(), 1, 64);
      if (ranks.rank() == 0) {
        ranks.send(stream, {"activations"}, memory.data(), 64, 1);
        if (waits) ranks.await_sent(stream, 1);
        stream.fill(memory.data(), 2, 64);
      } else {
        ranks.receive(stream, {"activations"}, memory.data(), 64, 0);
      }
      stream.synchronize();
      ranks.barrier();
    });
    EXPECT_EQ(checker.hazards().empty(), waits);
  }
}

// Each group gathers as often as it likes.
void gather_in_groups(Communicator& ranks, Device& device) {
  const bool first = ranks.rank() < 2;
  const std::vector<int> members = first ? std::vector<int>{0, 1} : std::vector<int>{2, 3, 4};
  const auto group = ranks.group(members);
  ASSERT_EQ(group->size(), static_cast<int>(members.size()));
  const Stream stream(device, "group");
  const DeviceBuffer from(device, 4), to(device, 4 * members.size());
  for (int round = 0; round < (first ? 5 : 2); ++round) {
    stream.fill(from.data(), static_cast<std::uint8_t>(10 * ranks.rank() + round), 4);
    group->all_gather(stream, {"gather"}, to.data(), from.data(), 4);
    Bits got(4 * members.size());
    stream.copy(got.data(), to.data(), got.size(), CopyKind::device_to_host);
    stream.synchronize();
    for (std::size_t m = 0; m < members.size(); ++m) EXPECT_EQ(got[4 * m], 10 * members[m] + round);
    EXPECT_EQ(group->all_gather_object(std::to_string(ranks.rank())).back(),
              std::to_string(members.back()));
  }
  ranks.barrier();
}

TEST(Groups, MeetWithoutTheOthers) {
  Checker checker({.stop = false, .mutation = "", .dropped = {}});
  Device device(open_sim({}), &checker);
  run_ranks(device, 5, 3, [&](Communicator& ranks) { gather_in_groups(ranks, device); });
  EXPECT_TRUE(checker.hazards().empty());
  for (const Over over : {Over::memory, Over::network}) {
    const Stores stores(over, 5);
    Processes processes(5, [&](int rank) {
      const auto store = stores.join(rank, kDeadline);
      Device own(open_sim({}));
      gather_in_groups(*make_store_communicator(own, *store), own);
      return testing::Test::HasFailure() ? 2 : 0;
    });
    for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
  }
}

// Ranks that have two groups in common make calls of both in turn. Who is ahead has sent a letter
// of the next group already.
void gather_in_two_groups(Communicator& ranks, Device& device) {
  const int own = ranks.rank();
  const auto all = ranks.group({0, 1, 2, 3});
  const auto pair = ranks.group(own < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
  const Stream one(device, "one"), other(device, "other");
  const DeviceBuffer from(device, 8), of_all(device, 32), of_pair(device, 16);
  for (int round = 0; round < 20; ++round) {
    one.synchronize();
    one.fill(from.data(), static_cast<std::uint8_t>(10 * own + round), 8);
    one.synchronize();
    all->all_gather(one, {"all"}, of_all.data(), from.data(), 8);
    pair->all_gather(other, {"pair"}, of_pair.data(), from.data(), 8);
    one.synchronize();
    other.synchronize();
    Bits got(32), got_pair(16);
    one.copy(got.data(), of_all.data(), 32, CopyKind::device_to_host);
    one.copy(got_pair.data(), of_pair.data(), 16, CopyKind::device_to_host);
    one.synchronize();
    for (int r = 0; r < 4; ++r) EXPECT_EQ(got[8 * r], 10 * r + round);
    for (int r = 0; r < 2; ++r) EXPECT_EQ(got_pair[8 * r], 10 * (own - own % 2 + r) + round);
  }
  ranks.barrier();
}

TEST(Groups, KeepTheirLettersApart) {
  Device device(open_sim({}));
  run_ranks(device, 4, 5, [&](Communicator& ranks) { gather_in_two_groups(ranks, device); });
  for (const Over over : {Over::memory, Over::network}) {
    const Stores stores(over, 4);
    Processes processes(4, [&](int rank) {
      const auto store = stores.join(rank, kDeadline);
      Device own(open_sim({}));
      gather_in_two_groups(*make_store_communicator(own, *store), own);
      return testing::Test::HasFailure() ? 2 : 0;
    });
    for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
  }
}

// Each run of a case has groups of its own on one store, and a letter of no group lies beside them.
TEST(Groups, AreAsManyAsRunsNeed) {
  const Stores stores(Over::memory, 2);
  Processes processes(2, [&](int rank) {
    const auto store = stores.join(rank, 5);
    const CollectiveCall call = call_of_transfer({"letter"}, 0, "");
    if (rank == 0) store->send(1, call, {});
    for (int run = 0; run < 600; ++run) {
      GroupStore group(*store, {0, 1});
      const std::string words = std::to_string(run);
      if (group.all_gather_object({}, words).at(1 - rank) != words) return 2;
    }
    if (rank == 1) store->receive(0, call);
    return 0;
  });
  for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
}

TEST(Groups, SayWhichRankIsLost) {
  for (const Over over : {Over::memory, Over::network}) {
    const Stores stores(over, 4);
    Processes processes(4, [&](int rank) {
      const auto store = stores.join(rank, 2);
      Device device(open_sim({}));
      const auto ranks = make_store_communicator(device, *store);
      const auto group = ranks->group(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
      group->barrier();
      if (rank == 3) return 0;
      ranks->barrier();
      return 0;
    });
    const std::vector<Ended> ended = processes.end();
    EXPECT_EQ(ended[3].status, 0);
    EXPECT_EQ(ended[2].status, 4);
    EXPECT_THAT(ended[2].words, HasSubstr("rank 3 has left"));
  }
}

}  // namespace
}  // namespace lockstep::test
