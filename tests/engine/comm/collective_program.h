// A random program of collectives: what each rank's buffers hold at the end is known in advance,
// whatever the schedule.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <ostream>
#include <stdexcept>

#include "engine/comm/communicator.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {

struct CollectiveStep {
  bool gather;      // Else all_to_all.
  bool refill;      // `from` gets new bytes first; else it is what the calls before have left.
  bool in_place;    // For an all_gather.
  bool read;        // `to` is read afterwards, on the same stream.
  bool meet;        // The hosts meet afterwards.
  int stream;       // For kStreams.
  int from, apart;  // Buffer `from`; `to` is `apart` further.
  int bytes;        // For each part.
};

inline std::ostream& operator<<(std::ostream& out, const CollectiveStep& s) {
  return out << (s.gather ? "all_gather" : "all_to_all") << (s.refill ? " refill" : "")
             << (s.in_place ? " in place" : "") << (s.read ? " read" : "")
             << (s.meet ? " meet" : "") << " stream " << s.stream << " from " << s.from << " apart "
             << s.apart << " bytes " << s.bytes;
}

class CollectiveProgram {
 public:
  static constexpr int kStreams = 3, kBuffers = 3, kBytes = 32;

  CollectiveProgram(int ranks, std::vector<CollectiveStep> steps)
      : ranks_(ranks), steps_(std::move(steps)) {}

  // The bytes that rank `rank` sees: the bytes of each read, then those of all its buffers.
  std::vector<std::vector<unsigned char>> run(Communicator& communicator, Device& device) const {
    Run run(communicator, device, *this);
    for (std::size_t i = 0; i < steps_.size(); ++i) run.step(steps_[i], static_cast<int>(i));
    return run.end();
  }
  // The same with the steps `first` to `end` - 1 in a graph: they neither read nor meet.
  std::vector<std::vector<unsigned char>> run_with_graph(Communicator& communicator, Device& device,
                                                         int first, int end) const {
    Run run(communicator, device, *this);
    const auto steps = [&](int from, int to) {
      for (int i = from; i < to; ++i) run.step(steps_[static_cast<std::size_t>(i)], i);
    };
    steps(0, first);
    run.in_a_graph([&] { steps(first, end); });
    steps(end, static_cast<int>(steps_.size()));
    return run.end();
  }
  // The same of all ranks, by the definition of the calls.
  std::vector<std::vector<std::vector<unsigned char>>> expected() const;

 private:
  using Bytes = std::vector<unsigned char>;
  static unsigned char byte(int step, int rank, int part) {
    return static_cast<unsigned char>(1 + 37 * step + 11 * rank + 3 * part);
  }
  std::size_t buffer_bytes() const { return static_cast<std::size_t>(ranks_) * kBytes; }
  static int to_of(const CollectiveStep& s) {
    return s.gather && s.in_place ? s.from : (s.from + s.apart) % kBuffers;
  }

  class Run {
   public:
    Run(Communicator& communicator, Device& device, const CollectiveProgram& program)
        : communicator_(communicator), device_(device), program_(program) {
      for (const char* name : {"compute", "gather", "reduce"}) streams_.emplace_back(device, name);
      for (int i = 0; i < kBuffers; ++i) {
        buffers_.emplace_back(device, program.buffer_bytes());
        for (int stream = 0; stream < 2 * kStreams; ++stream) touched_.emplace_back(device);
        streams_[0].fill(buffers_.back().data(), 0, program.buffer_bytes());
      }
      streams_[0].synchronize();
    }
    void step(const CollectiveStep& s, int number) {
      const Stream& stream = streams_[static_cast<std::size_t>(s.stream)];
      const int rank = communicator_.rank(), ranks = communicator_.size(), to = to_of(s);
      const auto bytes = static_cast<std::size_t>(s.bytes);
      // The results of calls are ordered by the communicator; what this rank did besides is not.
      wait(stream, to);
      if (s.refill) {
        wait(stream, s.from);
        for (int part = 0; part < ranks; ++part) {
          stream.fill(at(s.from) + static_cast<std::size_t>(part) * bytes, byte(number, rank, part),
                      bytes);
        }
      }
      if (s.gather) {
        const std::byte* own =
            s.in_place ? at(to) + static_cast<std::size_t>(rank) * bytes : at(s.from);
        communicator_.all_gather(stream, {"gather", number}, at(to), own, bytes);
      } else {
        communicator_.all_to_all(stream, {"reduce", number}, at(to), at(s.from), bytes);
      }
      if (s.read) {
        reads_.emplace_back(device_, program_.buffer_bytes());
        stream.copy(reads_.back().data(), at(to), program_.buffer_bytes(),
                    CopyKind::device_to_host);
      }
      stream.record(touched(s.from, s.stream));
      stream.record(touched(to, s.stream));
      if (s.meet) communicator_.barrier();
    }
    void in_a_graph(const std::function<void()>& steps) {
      const Stream& origin = streams_[0];
      const auto body = [&] {
        origin.record(fork_);
        for (const Stream& stream : streams_) stream.wait(fork_);
        steps();
        for (const Stream& stream : streams_) {
          stream.record(fork_);
          origin.wait(fork_);
        }
      };
      for (const Stream& stream : streams_) {  // What this rank itself did on the others.
        stream.record(fork_);
        origin.wait(fork_);
      }
      captured_ = true;
      origin.begin_capture();
      body();
      const Graph& graph = graph_.emplace(origin.end_capture());
      Ledger ledger;
      {
        const Device::RecordOnly only(device_, ledger);
        body();
      }
      const std::string differs = difference(graph.ledger(), ledger);
      if (!differs.empty())
        throw std::runtime_error("a dry run records something else: " + differs);
      communicator_.launch(origin, graph.ledger(), [&] { origin.launch(graph); });
      captured_ = false;
      for (int buffer = 0; buffer < kBuffers; ++buffer) origin.record(touched(buffer, 0));
    }
    std::vector<Bytes> end() {
      for (const Stream& stream : streams_) stream.synchronize();
      for (const DeviceBuffer& buffer : buffers_) {
        reads_.emplace_back(device_, buffer.bytes());
        streams_[0].copy(reads_.back().data(), buffer.data(), buffer.bytes(),
                         CopyKind::device_to_host);
      }
      streams_[0].synchronize();
      std::vector<Bytes> seen;
      for (const PinnedBuffer& read : reads_) {
        device_.host_reads(read.data(), read.bytes());
        const auto* first = static_cast<const unsigned char*>(read.data());
        seen.emplace_back(first, first + read.bytes());
      }
      return seen;
    }

   private:
    std::byte* at(int buffer) {
      return static_cast<std::byte*>(buffers_[static_cast<std::size_t>(buffer)].data());
    }
    // No event of one side of a capture is waited for on the other.
    Event& touched(int buffer, int stream) {
      return touched_[static_cast<std::size_t>((captured_ ? kBuffers : 0) * kStreams +
                                               buffer * kStreams + stream)];
    }
    void wait(const Stream& waiter, int buffer) {
      for (int stream = 0; stream < kStreams; ++stream) waiter.wait(touched(buffer, stream));
    }
    Communicator& communicator_;
    Device& device_;
    const CollectiveProgram& program_;
    std::vector<Stream> streams_;
    std::vector<DeviceBuffer> buffers_;
    std::vector<PinnedBuffer> reads_;
    Event fork_{device_};
    bool captured_ = false;
    std::vector<Event>
        touched_;  // What this rank itself did to a buffer on a stream: eagerly, then in the graph.
    std::optional<Graph> graph_;
  };

  int ranks_;
  std::vector<CollectiveStep> steps_;
};

inline std::vector<std::vector<std::vector<unsigned char>>> CollectiveProgram::expected() const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  std::vector<std::vector<Bytes>> memory(ranks,
                                         std::vector<Bytes>(kBuffers, Bytes(buffer_bytes(), 0)));
  std::vector<std::vector<Bytes>> seen(ranks);
  const auto part = [](Bytes& bytes, std::size_t index, int size) {
    return bytes.begin() + static_cast<long>(index) * size;
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const CollectiveStep& s = steps_[i];
    const auto from = static_cast<std::size_t>(s.from), to = static_cast<std::size_t>(to_of(s));
    for (std::size_t r = 0; r < ranks && s.refill; ++r) {
      for (std::size_t p = 0; p < ranks; ++p) {
        std::fill_n(part(memory[r][from], p, s.bytes), s.bytes,
                    byte(static_cast<int>(i), static_cast<int>(r), static_cast<int>(p)));
      }
    }
    auto before = memory;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const std::size_t source = !s.gather ? r : s.in_place ? peer : 0;
        std::copy_n(part(before[peer][from], source, s.bytes), s.bytes,
                    part(memory[r][to], peer, s.bytes));
      }
      if (s.read) seen[r].push_back(memory[r][to]);
    }
  }
  for (std::size_t r = 0; r < ranks; ++r)
    seen[r].insert(seen[r].end(), memory[r].begin(), memory[r].end());
  return seen;
}

inline rc::Gen<std::vector<CollectiveStep>> any_collective_steps() {
  return rc::gen::container<std::vector<CollectiveStep>>(rc::gen::build<CollectiveStep>(
      rc::gen::set(&CollectiveStep::gather), rc::gen::set(&CollectiveStep::refill),
      rc::gen::set(&CollectiveStep::in_place), rc::gen::set(&CollectiveStep::read),
      rc::gen::set(&CollectiveStep::meet),
      rc::gen::set(&CollectiveStep::stream, rc::gen::inRange(0, CollectiveProgram::kStreams)),
      rc::gen::set(&CollectiveStep::from, rc::gen::inRange(0, CollectiveProgram::kBuffers)),
      rc::gen::set(&CollectiveStep::apart, rc::gen::inRange(1, CollectiveProgram::kBuffers)),
      rc::gen::set(&CollectiveStep::bytes, rc::gen::inRange(0, CollectiveProgram::kBytes + 1))));
}

}  // namespace lockstep::test
