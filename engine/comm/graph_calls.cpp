#include "engine/comm/graph_calls.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "engine/rendezvous/collective_errors.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

std::string side(int rank, const std::vector<std::string>& calls, std::size_t at) {
  return "rank " + std::to_string(rank) + (at < calls.size() ? " " + calls[at] : " no call");
}

bool is_transfer(const ExchangeCall& call) {
  return call.exchange.kind == CollectiveKind::send ||
         call.exchange.kind == CollectiveKind::receive;
}

// A line names the way behind its first character, then the transfer: both sides of a transfer have
// the same there.
constexpr char kSend = '>', kReceive = '<', kBehindWay = '|';

// A way's transfers as one of its two ends has them.
struct End {
  int rank = -1;
  std::vector<std::string> transfers;
};

std::string side(const char* does, const End& end, std::size_t at) {
  const std::string who = end.rank < 0 ? "no rank" : "rank " + std::to_string(end.rank);
  return who + " " + does + " " +
         (at < end.transfers.size() ? end.transfers[at] : std::string("nothing more"));
}

}  // namespace

std::string transfers_text(const Ledger& graph, std::span<const std::uint64_t> documents) {
  std::string all;
  for (const IssuedCall& entry : graph.entries()) {
    const auto* const call = entry.as<ExchangeCall>();
    if (call == nullptr || !is_transfer(*call)) continue;
    CollectiveName name = call->exchange.name;
    name.documents = at(documents, name.microbatch);
    all += call->exchange.kind == CollectiveKind::send ? kSend : kReceive;
    all += name.purpose + std::to_string(name.unit) + kBehindWay;
    all += text(call_of_transfer(name, call->bytes, "")) + "\n";
  }
  return all;
}

void require_matching_transfers(const std::vector<RankTransfers>& ranks) {
  std::map<std::string, std::pair<End, End>> ways;  // Sender and receiver.
  for (const RankTransfers& one : ranks) {
    for (const std::string& line : lines_of(one.text)) {
      const std::size_t behind = std::min(line.find(kBehindWay), line.size() - 1);
      auto& [sender, receiver] = ways[line.substr(1, behind)];
      End& end = line.front() == kSend ? sender : receiver;
      end.rank = one.rank;
      end.transfers.push_back(line.substr(behind + 1));
    }
  }
  for (const auto& [way, ends] : ways) {
    const auto& [sender, receiver] = ends;
    if (sender.transfers == receiver.transfers) continue;
    std::size_t number = 0;
    while (number < std::min(sender.transfers.size(), receiver.transfers.size()) &&
           sender.transfers[number] == receiver.transfers[number])
      ++number;
    throw CollectiveMismatch("stages would replay different transfers: " +
                             side("has", sender, number) + "; " + side("awaits", receiver, number));
  }
}

std::string calls_text(const Ledger& graph) {
  std::string text;
  for (const IssuedCall& entry : graph.entries()) {
    if (const auto* exchange = entry.as<ExchangeCall>()) text += call_text(*exchange) + "\n";
  }
  return text;
}

void require_same_calls(int rank, const std::vector<std::string>& calls) {
  const std::string& own = at(calls, rank);
  const auto other =
      std::find_if(calls.begin(), calls.end(), [&](const std::string& one) { return one != own; });
  if (other == calls.end()) return;
  const std::vector<std::string> mine = lines_of(own), theirs = lines_of(*other);
  std::size_t at = 0;
  while (at < mine.size() && at < theirs.size() && mine[at] == theirs[at]) ++at;
  throw CollectiveMismatch("ranks would replay different collectives: call " + std::to_string(at) +
                           " of the graph: " + side(rank, mine, at) + "; " +
                           side(static_cast<int>(other - calls.begin()), theirs, at));
}

}  // namespace lockstep
