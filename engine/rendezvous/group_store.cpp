#include "engine/rendezvous/group_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

static int place_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

GroupStore::GroupStore(Store& all, const std::vector<int>& ranks)
    : Store(place_in(ranks, all.rank()), static_cast<int>(ranks.size()),
            std::chrono::duration<double>(all.deadline()).count()),
      all_(all),
      ranks_(ranks),
      number_(all.groups_ = static_cast<std::uint8_t>(all.groups_ % 255 + 1)),  // Never 0.
      outbox_(kOutbox),
      posted_(ranks.size()) {
  require(!all.local_barrier, "a process with several ranks has no groups of them");
}

int GroupStore::number_of(int rank) const { return all_.number_of(at(ranks_, rank)); }

void GroupStore::put(const CollectiveCall& call, std::size_t filled) {
  const std::span<const std::byte> data(outbox_.data(), filled);
  CollectiveCall letter = call;
  letter.group = number_;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) all_.send(at(ranks_, peer), letter, data);
  }
  Posted& own = at(posted_, rank());
  own.rounds.push_back({call, {data.begin(), data.end()}});
  own.last = call;
  ++own.count;
}

void GroupStore::take() {
  for (Posted& peer : posted_) peer.rounds.pop_front();
}

void GroupStore::fetch(int peer) const {
  if (peer == rank()) return;
  Posted& of = at(posted_, peer);
  while (std::optional<Letter> letter = all_.poll(at(ranks_, peer), number_)) {
    letter->call.group = 0;
    of.last = letter->call;
    of.rounds.push_back(std::move(*letter));
    ++of.count;
  }
}

const Letter& GroupStore::round_of(int peer) const {
  const std::deque<Letter>& rounds = at(posted_, peer).rounds;
  if (rounds.empty())
    throw BadFrame("rank " + std::to_string(number_of(peer)) + " posted no round");
  return rounds.front();
}

std::span<const std::byte> GroupStore::posted_by(int peer) const { return round_of(peer).data; }
CollectiveCall GroupStore::call_of(int peer) const { return round_of(peer).call; }

// A letter that has been sent is nobody's to wait for. A rank that has left has sent all before.
Store::Progress GroupStore::progress_of(int peer, Mark mark) const {
  if (mark == Mark::taken) return {.rounds = rounds()};
  const int number = at(ranks_, peer);
  const int gone = all_.progress_of(number, Mark::taken).gone;
  fetch(peer);
  return {.gone = gone < 0 ? -1 : peer, .rounds = at(posted_, peer).count};
}

void GroupStore::wait_for_change(int peer, Mark, std::uint32_t) {
  if (peer != rank()) all_.wait_for_letters(at(ranks_, peer));
}

Store::Last GroupStore::last_of(int peer) const {
  const Posted& of = at(posted_, peer);
  return {.state = all_.last_of(at(ranks_, peer)).state, .posted = of.count, .call = of.last};
}

bool GroupStore::put_part(int, std::span<const std::byte>) { return false; }
bool GroupStore::take_part(int, std::vector<std::byte>&) { return false; }
void GroupStore::wait_for_part(int) {}

}  // namespace lockstep
