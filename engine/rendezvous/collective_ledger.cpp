#include "engine/rendezvous/collective_ledger.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "engine/rendezvous/collective_errors.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

template <std::size_t size>
void put(char (&to)[size], std::string_view from) {
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

template <std::size_t size>
bool is_printable(const char (&name)[size]) {
  const auto* const end = std::find(std::begin(name), std::end(name), '\0');
  return end != std::end(name) &&
         std::all_of(std::begin(name), end, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

bool is_well_formed_in_letter(const CollectiveCall& call) {
  return call.kind <= CollectiveKind::send && is_printable(call.purpose) &&
         is_printable(call.stream);
}

bool is_well_formed(const CollectiveCall& call) {
  return call.kind <= CollectiveKind::launch && is_well_formed_in_letter(call);
}

bool CollectiveCall::agrees_with(const CollectiveCall& other) const {
  return sequence == other.sequence && kind == other.kind && unit == other.unit &&
         bytes == other.bytes && std::string_view(purpose) == other.purpose &&
         documents == other.documents;
}

static std::string text_of_transfer(const CollectiveCall& call) {
  std::string said = std::string("send of ") + call.purpose;
  if (call.unit >= 0) said += " of piece " + std::to_string(call.unit);
  if (call.sequence >= 0) said += ", microbatch " + std::to_string(call.sequence);
  said += ", " + std::to_string(call.bytes) + " bytes";
  char digest[20];
  std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(call.documents));
  if (call.documents != 0) said += std::string(", documents ") + digest;
  return said;
}

bool CollectiveCall::is_on_the_way_of(const CollectiveCall& other) const {
  return unit == other.unit && std::string_view(purpose) == other.purpose && group == other.group;
}

std::string text(const CollectiveCall& call) {
  if (call.kind == CollectiveKind::send) return text_of_transfer(call);
  if (call.sequence < 0) return "no collective";
  std::string said = "collective " + std::to_string(call.sequence) + ", " + to_text(call.kind);
  if (call.kind == CollectiveKind::barrier) {
    return call.purpose[0] == 0
               ? said
               : said + " for " + std::to_string(call.bytes) + " bytes of " + call.purpose;
  }
  if (call.kind == CollectiveKind::launch) return said + " of a graph on stream " + call.stream;
  said += std::string(" (") + call.purpose;
  if (call.unit >= 0) said += " of unit " + std::to_string(call.unit);
  return said + ", " + std::to_string(call.bytes) + " bytes a rank) on stream " + call.stream;
}

CollectiveCall call_of_transfer(const CollectiveName& name, std::size_t bytes,
                                const std::string& stream) {
  CollectiveCall call{.sequence = name.microbatch,
                      .kind = CollectiveKind::send,
                      .unit = name.unit,
                      .bytes = bytes,
                      .documents = name.documents};
  put(call.purpose, name.purpose);
  put(call.stream, stream);
  return call;
}

const CollectiveCall& CollectiveLedger::append(CollectiveKind kind, const CollectiveName& name,
                                               std::size_t bytes, const std::string& stream) {
  CollectiveCall call{.sequence = next_++, .kind = kind, .unit = name.unit, .bytes = bytes};
  put(call.purpose, name.purpose);
  put(call.stream, stream);
  if (calls_.size() == kKept) calls_.pop_front();
  return calls_.emplace_back(call);
}

CollectiveCall CollectiveLedger::at(std::int64_t sequence) const {
  const std::int64_t first = next_ - std::ssize(calls_);
  return sequence < first || sequence >= next_ ? CollectiveCall{}
                                               : lockstep::at(calls_, sequence - first);
}

void require_same_call(int rank, const CollectiveCall& call, int peer,
                       const CollectiveCall& peers_call) {
  if (call.agrees_with(peers_call)) return;
  throw CollectiveMismatch("ranks call different collectives: rank " + std::to_string(rank) + " " +
                           text(call) + "; rank " + std::to_string(peer) + " " + text(peers_call));
}

}  // namespace lockstep
