// Happens-before by definition, to judge the checker by: every item of a program, the transitive
// closure of all edges, and the set of bytes of each access. No clocks, no boxes, no forgetting.
#pragma once

#include <bitset>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "engine/device/device.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/submission/ops.h"

namespace lockstep::test {

// An item as its program named it: Place::layer, and the launch it was part of (-1: none).
using Label = std::pair<int, int>;

class BruteForce : public Observer {
 public:
  enum class Conflict { raw, war, waw };
  using Race = std::tuple<Label, Label, Conflict>;  // Earlier, later.

  std::set<Race> races() const;
  const std::set<Label>& undefined_reads() const { return undefined_reads_; }

  void on_call(const IssuedCall& issued) override {
    std::visit([&](const auto& call) { on(call, issued); }, issued.call);
  }

 private:
  // Never told twice of the starter: one run of ranks.
  void on(const RankCall& call, const IssuedCall&) {
    rank_ = call.rank;
    hosts_.try_emplace(rank_, hosts_.at(-1));
    if (rank_ >= 0) return;
    for (const auto& [other, last] : hosts_) host() = add({host(), last});
  }
  void on(const BarrierCall& barrier, const IssuedCall&) {
    std::vector<int>& came = came_[meetings_[rank_]];
    if (!barrier.goes_on) return came.push_back(host());
    came.push_back(host());
    host() = add(came);
    came.pop_back();
    ++meetings_[rank_];
  }
  void on(const SubmitCall& call, const IssuedCall& issued) {
    if (!in_capture_)
      run(issued.stream, accesses_of(call.op), {issued.place.layer, -1}, is_poison(call.op));
  }
  void on(const CopyCall& copy, const IssuedCall& issued) {
    if (in_capture_) return;
    run(issued.stream, accesses_of(copy), {issued.place.layer, -1});
    if (!is_ours(copy.to)) host() = add({host(), tail(issued.stream)});
  }
  void on(const FillCall& fill, const IssuedCall& issued) {
    if (in_capture_) return;
    run(issued.stream, accesses_of(fill), {issued.place.layer, -1});
  }
  void on(const HostAccessCall& call, const IssuedCall& issued) {
    host() = add({host()});
    const Access access = call.writes ? Access::out : Access::in;
    touch(host(), {bytes_of(access, call.memory, call.bytes)}, {issued.place.layer, -1}, false);
  }
  void on(const RecordCall& record, const IssuedCall& issued) {
    if (!in_capture_)
      events_[record.event] = tails_[issued.stream] = add({host(), tail(issued.stream)});
  }
  void on(const WaitCall& wait, const IssuedCall& issued) {
    if (!in_capture_)
      tails_[issued.stream] = add({host(), tail(issued.stream), recorded(wait.event)});
  }
  void on(const SyncCall& sync, const IssuedCall& issued) {
    host() = add({host(), sync.event >= 0 ? recorded(sync.event) : tail(issued.stream)});
  }
  void on(const QueryCall& query, const IssuedCall& issued) { on(SyncCall{query.event}, issued); }
  // The program sees to it that between these all calls go into the graph.
  void on(const BeginCaptureCall&, const IssuedCall&) { in_capture_ = true; }
  void on(const EndCaptureCall&, const IssuedCall&) { in_capture_ = false; }
  void on(const LaunchCall& call, const IssuedCall& issued) {
    launch(issued.stream, call.graph, *call.captured);
  }
  void on(const AllocateCall& call, const IssuedCall&) {
    ours_[static_cast<std::byte*>(call.memory)] = call.bytes;
  }
  void on(const auto&, const IssuedCall&) {}  // All other calls.
  void launch(int stream, int graph, const Ledger& ledger);

  int& host() { return hosts_.at(rank_); }
  static constexpr std::size_t kMost = 4096;
  using Items = std::bitset<kMost>;
  struct Bytes {
    Access access;
    std::vector<const std::byte*> all;
  };
  struct Use {
    int item;
    Label label;
    bool writes, reads;
  };

  static bool is_poison(const Submission& op) {
    return op.type().id == AllOps::id_of<PoisonMemory>();
  }
  static std::vector<Bytes> accesses_of(const Submission& op) {
    std::vector<Bytes> list;
    for (const OperandBytes& o : op.operands()) {
      Bytes bytes{o.access, {}};
      for (std::int64_t i = 0; i < o.rows; ++i) {
        for (std::int64_t k = 0; k < o.row_bytes; ++k) {
          bytes.all.push_back(static_cast<std::byte*>(o.base) + i * o.pitch_bytes + k);
        }
      }
      list.push_back(std::move(bytes));
    }
    return list;
  }
  std::vector<Bytes> accesses_of(const CopyCall& copy) const {
    return {bytes_of(Access::out, copy.to, copy.bytes),
            bytes_of(Access::in, copy.from, copy.bytes)};
  }
  std::vector<Bytes> accesses_of(const FillCall& fill) const {
    return {bytes_of(Access::out, fill.to, fill.bytes)};
  }
  Bytes bytes_of(Access access, const void* base, std::size_t count) const {
    Bytes bytes{access, {}};
    for (std::size_t k = 0; k < count && is_ours(base); ++k) {
      bytes.all.push_back(static_cast<const std::byte*>(base) + k);
    }
    return bytes;
  }
  bool is_ours(const void* memory) const {
    const auto* byte = static_cast<const std::byte*>(memory);
    for (const auto& [base, bytes] : ours_) {
      if (byte >= base && byte < base + bytes) return true;
    }
    return false;
  }

  int add(const std::vector<int>& before) {
    Items items;
    for (const int b : before) {
      if (b >= 0)
        items |= before_[static_cast<std::size_t>(b)], items.set(static_cast<std::size_t>(b));
    }
    before_.push_back(items);
    return static_cast<int>(before_.size()) - 1;
  }
  int tail(int stream) const { return tails_.contains(stream) ? tails_.at(stream) : -1; }
  int recorded(int event) const { return events_.contains(event) ? events_.at(event) : -1; }
  void run(int stream, const std::vector<Bytes>& accesses, Label label, bool poison = false) {
    tails_[stream] = add({host(), tail(stream)});
    touch(tails_[stream], accesses, label, poison);
  }
  // Per byte, all uses in the order of the calls.
  void touch(int item, const std::vector<Bytes>& accesses, Label label, bool poison) {
    for (const Bytes& bytes : accesses) {
      const bool reads = bytes.access == Access::in || bytes.access == Access::accum;
      for (const std::byte* byte : bytes.all) {
        if (reads && !defined_.contains(byte)) undefined_reads_.insert(label);
      }
    }
    for (const Bytes& bytes : accesses) {
      const bool reads = bytes.access == Access::in || bytes.access == Access::accum;
      const bool writes = bytes.access != Access::in;
      for (const std::byte* byte : bytes.all) {
        uses_[byte].push_back({item, label, writes, reads});
        if (bytes.access == Access::out && !poison) defined_.insert(byte);
        if (bytes.access == Access::out && poison) defined_.erase(byte);
      }
    }
  }

  std::vector<Items> before_;  // By item: all that are over before it begins.
  std::map<const std::byte*, std::size_t> ours_;
  std::map<const std::byte*, std::vector<Use>> uses_;
  std::set<const std::byte*> defined_;
  std::set<Label> undefined_reads_;
  std::map<int, int> tails_, events_, graph_ends_, launches_;
  std::map<int, int> hosts_{{-1, -1}};    // By rank, the last item; -1 is who started them.
  std::map<int, int> meetings_;           // How many each host has gone on from.
  std::map<int, std::vector<int>> came_;  // By barrier: the last item of each rank that came.
  int rank_ = -1;
  bool in_capture_ = false;
};

inline void BruteForce::launch(int stream, int graph, const Ledger& ledger) {
  const int start =
      add({host(), tail(stream), graph_ends_.contains(graph) ? graph_ends_.at(graph) : -1});
  std::map<int, int> lanes, inside, outside;
  for (const IssuedCall& e : ledger.entries()) {
    const Label label{e.place.layer, launches_[graph]};
    int& end = lanes.try_emplace(e.stream, start).first->second;
    std::visit(
        Overloaded{
            [&](const RecordCall& c) {
              (c.external ? outside : inside)[c.event] = end = add({end});
            },
            [&](const WaitCall& c) {
              end = add({end, c.external ? recorded(c.event) : inside.at(c.event)});
            },
            [&](const SubmitCall& c) {
              touch(end = add({end}), accesses_of(c.op), label, is_poison(c.op));
            },
            [&](const FillCall& c) { touch(end = add({end}), accesses_of(c), label, false); },
            [&](const CopyCall& c) { touch(end = add({end}), accesses_of(c), label, false); },
            [](const auto&) {},
        },
        e.call);
  }
  std::vector<int> ends{start};
  for (const auto& [s, last] : lanes) ends.push_back(last);
  tails_[stream] = graph_ends_[graph] = add(ends);
  for (const auto& [event, item] : outside) events_[event] = item;
  ++launches_[graph];
}

inline std::set<BruteForce::Race> BruteForce::races() const {
  std::set<Race> found;
  for (const auto& [byte, uses] : uses_) {
    for (std::size_t j = 0; j < uses.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        const Use &a = uses[i], &b = uses[j];
        if (a.item == b.item || !(a.writes || b.writes)) continue;
        if (before_[static_cast<std::size_t>(b.item)][static_cast<std::size_t>(a.item)]) continue;
        const Conflict kind = !a.writes ? Conflict::war : b.reads ? Conflict::raw : Conflict::waw;
        found.insert({a.label, b.label, kind});
      }
    }
  }
  return found;
}

}  // namespace lockstep::test
