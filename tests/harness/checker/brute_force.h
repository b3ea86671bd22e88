// Happens-before by definition, to judge the checker by: every item of a program, the transitive closure of all edges,
// and the set of bytes of each access. No clocks, no boxes, no forgetting.
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

  // Never told twice of the starter: one run of ranks.
  void on_host(int rank) override {
    rank_ = rank;
    hosts_.try_emplace(rank, hosts_.at(-1));
    if (rank >= 0) return;
    for (const auto& [other, last] : hosts_) host() = add({host(), last});
  }
  void on_meet(bool goes_on) override {
    std::vector<int>& came = came_[meetings_[rank_]];
    if (!goes_on) return came.push_back(host());
    came.push_back(host());
    host() = add(came);
    came.pop_back();
    ++meetings_[rank_];
  }
  void on_submit(int stream, const Submission& op, const Place& place) override {
    if (!in_capture_) run(stream, accesses_of(op), {place.layer, -1}, is_poison(op));
  }
  void on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind, const Place& place) override {
    if (in_capture_) return;
    run(stream, {bytes_of(Access::out, to, bytes), bytes_of(Access::in, from, bytes)}, {place.layer, -1});
    if (!is_ours(to)) host() = add({host(), tail(stream)});
  }
  void on_fill(int stream, void* to, std::size_t bytes, const Place& place) override {
    if (in_capture_) return;
    run(stream, {bytes_of(Access::out, to, bytes)}, {place.layer, -1});
  }
  void on_host_write(const void* to, std::size_t bytes, const Place& place) override {
    host() = add({host()});
    touch(host(), {bytes_of(Access::out, to, bytes)}, {place.layer, -1}, false);
  }
  void on_host_read(const void* from, std::size_t bytes, const Place& place) override {
    host() = add({host()});
    touch(host(), {bytes_of(Access::in, from, bytes)}, {place.layer, -1}, false);
  }
  void on_record(int stream, int event, bool) override {
    if (!in_capture_) events_[event] = tails_[stream] = add({host(), tail(stream)});
  }
  void on_wait(int stream, int event, bool) override {
    if (!in_capture_) tails_[stream] = add({host(), tail(stream), recorded(event)});
  }
  void on_synchronize_stream(int stream) override { host() = add({host(), tail(stream)}); }
  void on_synchronize_event(int event) override { host() = add({host(), recorded(event)}); }
  void on_found_finished_stream(int stream) override { on_synchronize_stream(stream); }
  void on_found_finished_event(int event) override { on_synchronize_event(event); }
  // The program sees to it that between these all calls go into the graph.
  void on_begin_capture(int) override { in_capture_ = true; }
  void on_end_capture(int, int, const Ledger&) override { in_capture_ = false; }
  void on_launch(int stream, int graph, const Ledger& ledger, const Place&) override;
  void on_allocate(void* memory, std::size_t bytes, bool) override { ours_[static_cast<std::byte*>(memory)] = bytes; }

 private:
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

  static bool is_poison(const Submission& op) { return op.type().id == AllOps::id_of<PoisonMemory>(); }
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
      if (b >= 0) items |= before_[static_cast<std::size_t>(b)], items.set(static_cast<std::size_t>(b));
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
  std::map<int, std::vector<int>> came_;  // By meeting: the last item of each that came.
  int rank_ = -1;
  bool in_capture_ = false;
};

inline void BruteForce::on_launch(int stream, int graph, const Ledger& ledger, const Place&) {
  const int start = add({host(), tail(stream), graph_ends_.contains(graph) ? graph_ends_.at(graph) : -1});
  std::map<int, int> lanes, inside, outside;
  const auto lane = [&](int s) { return lanes.contains(s) ? lanes.at(s) : start; };
  for (const LedgerEntry& e : ledger.entries()) {
    const Label label{e.place.layer, launches_[graph]};
    if (e.kind == LedgerEntry::Kind::record) {
      (e.external ? outside : inside)[e.event] = lanes[e.stream] = add({lane(e.stream)});
    } else if (e.kind == LedgerEntry::Kind::wait) {
      lanes[e.stream] = add({lane(e.stream), e.external ? recorded(e.event) : inside.at(e.event)});
    } else {
      lanes[e.stream] = add({lane(e.stream)});
      if (e.op) touch(lanes[e.stream], accesses_of(*e.op), label, is_poison(*e.op));
      if (e.kind == LedgerEntry::Kind::fill) {
        touch(lanes[e.stream], {bytes_of(Access::out, e.to, e.bytes)}, label, false);
      }
      if (e.kind == LedgerEntry::Kind::copy) {
        touch(lanes[e.stream], {bytes_of(Access::out, e.to, e.bytes), bytes_of(Access::in, e.from, e.bytes)}, label,
              false);
      }
    }
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
