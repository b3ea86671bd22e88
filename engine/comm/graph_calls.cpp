#include "engine/comm/graph_calls.h"

#include <algorithm>
#include <sstream>

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

}  // namespace

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
