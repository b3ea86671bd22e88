// Which graphs a set keeps under a limit, and that eviction takes nothing from what was launched.
// On the device under test: a graph goes while its launch may still run.
#include "engine/graphs/graph_set.h"

#include "tests/engine/device/on_sim.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

struct Set {
  Set(std::int64_t limit, Policy policy = Policy::lazy)
      : device(open_device_under_test({.policy = policy})),
        graphs(
            stream, [] { return std::vector<const void*>{}; }, true, limit) {}

  GraphSet::Body body(int bucket) {
    return
        [this, bucket] { stream.fill(x.data(), static_cast<std::uint8_t>(bucket + 1), x.bytes()); };
  }
  void capture(int bucket, int slot = 0) {
    graphs.capture({.kind = {}, .slot = slot, .bucket = bucket}, body(bucket));
  }
  void launch(int bucket, int slot = 0) {
    graphs.launch({.kind = {}, .slot = slot, .bucket = bucket}, body(bucket));
  }
  std::vector<int> buckets() const {
    std::vector<int> held;
    for (int bucket = 0; bucket < 8; ++bucket) {
      if (graphs.has_bucket({bucket})) held.push_back(bucket);
    }
    return held;
  }

  Device device;
  Stream stream{device, "compute"};
  Floats x{device, 256};
  GraphSet graphs;
};

constexpr std::int64_t kOne = GraphSet::kCallBytes;  // For a graph with one call.
using Buckets = std::vector<int>;

TEST(GraphSet, KeepsTheBucketsThatWereUsedLast) {
  Set set(3 * kOne);
  for (const int bucket : {0, 1, 2}) set.capture(bucket);
  EXPECT_EQ(set.buckets(), (Buckets{0, 1, 2}));  // Just what the limit allows.
  EXPECT_EQ(set.graphs.evicted, 0);
  set.launch(0);
  set.capture(3);
  EXPECT_EQ(set.buckets(), (Buckets{0, 2, 3}));
  set.capture(1);
  EXPECT_EQ(set.buckets(), (Buckets{0, 1, 3}));
  EXPECT_EQ(set.graphs.captured, 5);
  EXPECT_EQ(set.graphs.evicted, 2);
}

TEST(GraphSet, EvictsABucketWithAllOfItsGraphs) {
  Set set(4 * kOne - 1);
  for (const int slot : {0, 1, 2}) set.capture(0, slot);
  set.capture(1);
  EXPECT_EQ(set.buckets(), Buckets{1});
  EXPECT_EQ(set.graphs.evicted, 3);
  EXPECT_FALSE(set.graphs.has({.kind = {}, .slot = 2, .bucket = 0}));
}

TEST(GraphSet, KeepsTheBucketInUseWhateverTheLimit) {
  Set set(1);
  for (const int slot : {0, 1, 2}) set.capture(5, slot);
  EXPECT_EQ(set.buckets(), Buckets{5});
  EXPECT_EQ(set.graphs.evicted, 0);
  set.launch(5, 1);
  EXPECT_EQ(read(set.stream, set.x).size(), 256u);
}

// The chunks of a stage have buckets of their own under one limit.
TEST(GraphSet, EvictsTheBucketOfOneChunk) {
  Set set(3 * kOne);
  const auto key = [](int bucket, int chunk) {
    return GraphKey{.kind = {}, .slot = chunk, .bucket = bucket, .chunk = chunk};
  };
  for (const int chunk : {0, 1}) set.graphs.capture(key(0, chunk), set.body(0));
  set.graphs.capture(key(1, 1), set.body(1));
  EXPECT_EQ(set.graphs.evicted, 0);
  set.graphs.launch(key(0, 0), set.body(0));
  set.graphs.capture(key(1, 0), set.body(1));
  EXPECT_FALSE(set.graphs.has_bucket({0, 1}));
  for (const GraphSet::Bucket bucket : {GraphSet::Bucket{0, 0}, {1, 0}, {1, 1}})
    EXPECT_TRUE(set.graphs.has_bucket(bucket));
  EXPECT_EQ(set.graphs.evicted, 1);
}

TEST(GraphSet, EvictsNothingWithoutALimit) {
  Set set(0);
  for (int bucket = 0; bucket < 8; ++bucket) set.capture(bucket);
  EXPECT_EQ(set.buckets().size(), 8u);
  EXPECT_EQ(set.graphs.evicted, 0);
}

TEST(GraphSet, CountsNothingOfWhatWasTornDown) {
  Set set(2 * kOne);
  for (const int bucket : {0, 1}) set.capture(bucket);
  set.graphs.clear();
  EXPECT_EQ(set.buckets(), Buckets{});
  for (const int bucket : {2, 3}) set.capture(bucket);
  EXPECT_EQ(set.buckets(), (Buckets{2, 3}));
  EXPECT_EQ(set.graphs.evicted, 0);
}

TEST(GraphSet, WhatWasLaunchedOfAnEvictedBucketRunsToItsEnd) {
  for (const Policy policy : all_policies()) {
    Set set(kOne, policy);
    set.stream.fill(set.x.data(), 0xff, set.x.bytes());
    set.capture(0);
    set.launch(0);
    set.capture(1);
    EXPECT_EQ(set.buckets(), Buckets{1});
    const float want = std::bit_cast<float>(0x01010101u);
    EXPECT_EQ(read(set.stream, set.x), std::vector<float>(256, want));
  }
}

}  // namespace
}  // namespace lockstep::test
