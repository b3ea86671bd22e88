#include "harness/mutate/systematic.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "harness/mutate/equivalent_mutant.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Which reports this fault should lead to.
std::vector<Reason> reasons_of(const DeviceFault& fault) {
  const Reason bits{std::nullopt, {}}, order{JudgeKind::hazard, {"Missing edge"}},
      unwritten{JudgeKind::hazard, {"use before write"}};
  const Reason count{JudgeKind::vacuous, {"graph_replays"}};
  // A graph that was captured without a call lacks its entry when the region runs again in
  // record-only mode.
  const Reason entry{JudgeKind::ledger, {"entry"}};
  // Without an edge of a capture a stream does not join it, or does not come back.
  const Reason fork{JudgeKind::capture,
                    {"cudaErrorStreamCapture", "event of a capture that is over"}};
  // A stream that has not joined a capture may neither record nor wait for an external event: it is
  // refused before anything of the capture can be compared. It is a stream of copies that lost the
  // edge by which it joins, or the stream to which the external event itself was moved.
  const Reason not_joined{JudgeKind::capture,
                          {"external wait outside a capture", "external record outside a capture"}};
  switch (fault.op) {
    case DeviceOperator::drop_wait:
    case DeviceOperator::drop_record:
    case DeviceOperator::move_wait:
    case DeviceOperator::move_record:
      if (fault.site.starts_with("captured/")) return {order, bits, entry, fork, not_joined};
      return {order, bits, entry, fork};
    case DeviceOperator::drop_sync:
      return {order, bits, entry, fork};
    case DeviceOperator::drop_copy:
      // The host goes by rows of another microbatch: too many change no bit, but what is moved.
      // Ranks that go by different counts exchange different numbers of rows.
      return {unwritten,
              bits,
              entry,
              {JudgeKind::vacuous, {"rows that the oracle's experts have"}},
              {JudgeKind::collective, {"ranks call different collectives"}}};
    case DeviceOperator::drop_fill:
      return {unwritten, bits, entry};
    case DeviceOperator::drop_op:
      return {unwritten, bits, entry};
    case DeviceOperator::move_op:
      return {order, unwritten, bits, entry};
    case DeviceOperator::free_early:
      return {{JudgeKind::hazard, {"use after free"}}};
    case DeviceOperator::alias_buffers:
      return {{JudgeKind::hazard, {"overlapping operands", "Missing edge", "use before write"}},
              bits};
    case DeviceOperator::wrong_buffer:
      return {{JudgeKind::hazard, {"overlapping operands", "Missing edge", "use before write"}},
              bits,
              {JudgeKind::ledger, {"is not where it was captured"}}};
    case DeviceOperator::move_address:
      // The graph goes on to write to the old place, so the new one lacks its values.
      return {{JudgeKind::ledger, {"is not where it was captured"}}, unwritten, bits};
    case DeviceOperator::replay_twice:
      return {bits, count};
    case DeviceOperator::replay_none:
      return {unwritten, bits, count};
    case DeviceOperator::bake_scalar:
      return {{JudgeKind::ledger, {"scalar"}}, bits};
  }
  return {};
}

bool removes_order(DeviceOperator op) {
  return op == DeviceOperator::drop_wait || op == DeviceOperator::drop_record ||
         op == DeviceOperator::drop_sync || op == DeviceOperator::move_wait ||
         op == DeviceOperator::move_record;
}

Fault fault_at(const DeviceFault& door, const std::vector<MutationCase>& cases) {
  Fault fault{.name = to_text(door),
              .kind = Fault::Kind::systematic,
              .bug_class = std::string(to_text(door.op)),
              .site = door.site,
              .reasons = reasons_of(door),
              .plant = {.planted = {.engine = to_text(door)}},
              .removes_order = removes_order(door.op),
              .can_be_equivalent = can_be_equivalent(door.op)};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const DeviceMutator::Sites& sites = at(cases[i].sites, door.op);
    if (door.op == DeviceOperator::move_address &&
        cases[i].last_launches.contains({door.site, door.index}))
      continue;
    const auto found = sites.find(door.site);
    if (found != sites.end() && door.index < found->second)
      fault.cases.push_back(static_cast<int>(i));
  }
  return fault;
}

// splitmix64.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The calls of one site in the order in which they are taken: one early, then any.
std::vector<std::int64_t> drawn(std::int64_t count, std::uint64_t seed) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> keys;
  for (std::int64_t i = 0; i < count; ++i)
    keys.emplace_back(mixed(seed ^ mixed(static_cast<std::uint64_t>(i))), i);
  std::sort(keys.begin(), keys.end());
  std::vector<std::int64_t> order;
  for (const auto& [key, index] : keys) order.push_back(index);
  return order;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::vector<Fault> systematic_faults(const std::vector<MutationCase>& cases, std::uint64_t seed,
                                     std::int64_t most) {
  std::vector<Fault> faults;
  for (std::size_t op = 0; op < kDeviceOperators.size(); ++op) {
    std::map<std::string, std::int64_t> counts;  // The most calls that a case has.
    for (const MutationCase& one : cases) {
      for (const auto& [site, count] : one.sites[op]) counts[site] = std::max(counts[site], count);
    }
    // The sites by a hash, so that the first of them are spread as well.
    std::map<std::pair<std::uint64_t, std::string>, std::vector<std::int64_t>> orders;
    for (const auto& [site, count] : counts) {
      const std::uint64_t key = mixed(mixed(seed) ^ hash_of(site));
      orders[{key, site}] = drawn(count, key);
    }
    // One of each site, then a second of each, until there are enough.
    std::vector<Fault> chosen;
    std::size_t rounds = 0;
    for (const auto& [key, order] : orders) rounds = std::max(rounds, order.size());
    for (std::size_t round = 0; round < rounds && static_cast<std::int64_t>(chosen.size()) < most;
         ++round) {
      for (const auto& [key, order] : orders) {
        if (round >= order.size() || static_cast<std::int64_t>(chosen.size()) >= most) continue;
        Fault fault = fault_at({static_cast<DeviceOperator>(op), key.second, order[round]}, cases);
        if (!fault.cases.empty()) chosen.push_back(std::move(fault));
      }
    }
    faults.insert(faults.end(), std::make_move_iterator(chosen.begin()),
                  std::make_move_iterator(chosen.end()));
  }
  return faults;
}

std::optional<Fault> systematic_fault(const std::vector<MutationCase>& cases,
                                      const std::string& name) {
  const std::optional<DeviceFault> door = device_fault(name);
  if (!door) return std::nullopt;
  Fault fault = fault_at(*door, cases);
  if (fault.cases.empty()) return std::nullopt;
  return fault;
}

}  // namespace lockstep
