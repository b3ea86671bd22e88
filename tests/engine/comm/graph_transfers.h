// Transfers in a graph, between eager ones: rank 0 sends a number, and rank 1 sends it back. Every
// transport and device gives the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {

constexpr const char *kForth = "activations", *kBack = "gradients";

inline std::vector<TransferWay> ways_in_a_graph() {
  return {{0, 1, kForth, 1, true}, {1, 0, kBack, 1, true}};
}

class GraphTransfers {
 public:
  GraphTransfers(Communicator& ranks, Device& device, std::int64_t count)
      : ranks_(ranks),
        device_(device),
        compute_(device, "compute"),
        send_(device, "send"),
        receive_(device, "receive"),
        begins_(device),
        written_(device),
        sent_(device),
        received_(device),
        staging_(device, static_cast<std::size_t>(4 * count)),
        own_(device, count),
        other_(device, count) {}

  // Two eager rounds, three of a graph, and an eager one. Returns what the rank received in each,
  // -1 where its elements differ.
  std::vector<float> run() {
    std::vector<float> all;
    for (const int number : {1, 2}) all.push_back(received(number, [this] { round(); }));
    compute_.begin_capture();
    round();
    const Graph graph = compute_.end_capture();
    for (const int number : {3, 4, 5}) {
      all.push_back(received(number, [&] {
        compute_.launch(graph);
        ranks_.launched_transfers(compute_);
      }));
    }
    all.push_back(received(6, [this] { round(); }));
    for (const Stream* stream : {&send_, &receive_}) stream->synchronize();
    ranks_.disconnect();
    ranks_.barrier();  // A rank that has left delivers nothing.
    return all;
  }
  static std::vector<float> expected() { return {1, 2, 3, 4, 5, 6}; }

 private:
  template <class Round>
  float received(int number, const Round& round) {
    device_.host_writes(staging_.data(), staging_.bytes());
    std::fill_n(static_cast<float*>(staging_.data()), own_.count, static_cast<float>(number));
    round();
    const std::vector<float> got = read(compute_, other_);
    return std::ranges::count(got, got.front()) == own_.count ? got.front() : -1;
  }
  void round() {
    compute_.record(begins_);
    for (const Stream* stream : {&send_, &receive_}) stream->wait(begins_);
    if (ranks_.rank() == 0) {
      compute_.copy(own_.data(), staging_.data(), own_.bytes(), CopyKind::host_to_device);
      send(kForth, 1);
    }
    ranks_.receive(receive_, {ranks_.rank() == 0 ? kBack : kForth}, other_.data(), other_.bytes(),
                   1 - ranks_.rank());
    receive_.record(received_);
    compute_.wait(received_);
    if (ranks_.rank() == 1) {
      compute_.copy(own_.data(), other_.data(), own_.bytes(), CopyKind::device_to_device);
      send(kBack, 0);
    }
    send_.record(sent_);
    compute_.wait(sent_);
  }
  void send(const char* purpose, int to) {
    compute_.record(written_);
    send_.wait(written_);
    ranks_.send(send_, {purpose}, own_.data(), own_.bytes(), to);
  }

  Communicator& ranks_;
  Device& device_;
  Stream compute_, send_, receive_;
  Event begins_, written_, sent_, received_;
  PinnedBuffer staging_;
  Floats own_, other_;
};

}  // namespace lockstep::test
