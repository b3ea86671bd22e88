#include "engine/rendezvous/store.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>

#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

Store::Store(int rank, int ranks, double deadline_s)
    : rank_(rank),
      ranks_(ranks),
      deadline_(
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline_s))) {
  require(rank >= 0 && rank < ranks, "a rank is one of the ranks");
}

// ---- A round ------------------------------------------------------------------------------------

std::byte* Store::begin() {
  if (local_barrier) local_barrier();
  await(Mark::taken);
  return outbox();
}

void Store::post(const CollectiveCall& call, std::size_t filled) {
  require(filled <= kOutbox, "what is left for the others fits the outbox");
  call_ = call;
  ++rounds_;
  put(call, filled);
}

void Store::await_posts() {
  if (local_barrier) local_barrier();
  await(Mark::posted);
  for (int peer = 0; peer < ranks_; ++peer) require_same_call(rank_, call_, peer, call_of(peer));
}

void Store::end() { take(); }

// The length that stands before words.
std::size_t Store::announced_by(int peer) const {
  std::size_t length = 0;
  const bool is_there = posted_by(peer).size() >= sizeof length;
  std::memcpy(&length, is_there ? outbox_of(peer) : outbox_of(peer, sizeof length), sizeof length);
  return length;
}

const std::byte* Store::outbox_of(int peer, std::size_t needed) const {
  const std::span<const std::byte> posted = posted_by(peer);
  if (posted.size() == needed) return posted.data();
  throw BadFrame("rank " + std::to_string(peer) + " posted " + std::to_string(posted.size()) +
                 " bytes, and " + std::to_string(needed) + " are needed");
}

std::vector<std::string> Store::all_gather_object(const CollectiveCall& call,
                                                  const std::string& words) {
  constexpr std::size_t kMost = kOutbox - sizeof(std::size_t);
  if (words.size() > kLongestWords)
    throw std::runtime_error("words of " + std::to_string(words.size()) + " bytes are too many");
  std::vector<std::string> said(ranks_);
  std::size_t longest = 0, first = 0;
  do {
    std::byte* outbox = begin();
    const std::size_t length = words.size(),
                      count = first < length ? std::min(kMost, length - first) : 0;
    std::memcpy(outbox, &length, sizeof length);
    std::memcpy(outbox + sizeof length, words.data() + std::min(first, length), count);
    post(call, sizeof length + count);
    await_posts();
    for (int peer = 0; peer < ranks_; ++peer) {
      std::string& of_peer = at(said, peer);
      const std::size_t theirs = announced_by(peer), had = of_peer.size();
      if (theirs > kLongestWords || theirs < had) {
        throw BadFrame("rank " + std::to_string(peer) + " announces " + std::to_string(theirs) +
                       " bytes of words, of which it has posted " + std::to_string(had));
      }
      longest = std::max(longest, theirs);
      const std::size_t more = std::min(kMost, theirs - had);
      const std::byte* const text = outbox_of(peer, sizeof theirs + more) + sizeof theirs;
      of_peer.append(reinterpret_cast<const char*>(text), more);
    }
    end();
    first += kMost;
  } while (first < longest);
  return said;
}

// ---- Waiting ------------------------------------------------------------------------------------

std::string Store::within() const {
  char text[40];
  std::snprintf(text, sizeof text, "within %g s", std::chrono::duration<double>(deadline_).count());
  return text;
}

int Store::one_that_is(State state) const {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_ && last_of(peer).state == state) return peer;
  }
  return -1;
}

// Waits until every rank has reached the mark in as many rounds as this one has posted.
void Store::await(Mark mark) {
  const Clock::time_point deadline = Clock::now() + deadline_;
  for (int peer = 0; peer < ranks_; ++peer) {
    for (;;) {
      const Progress seen = progress_of(peer, mark);
      if (static_cast<std::int32_t>(seen.rounds - rounds_) >= 0) break;
      const bool left = seen.gone >= 0;
      if (left || Clock::now() >= deadline) {
        // Others leave because of a rank that is lost, and are seen first.
        const int unheard = silent(), dead = one_that_is(lost);
        throw CollectiveHang("rank " +
                             std::to_string(left           ? (dead >= 0 ? dead : seen.gone)
                                            : unheard >= 0 ? unheard
                                                           : peer) +
                             (left ? " has left: " : " did not come " + within() + ": ") +
                             report(call_));
      }
      wait_for_change(peer, mark, seen.rounds);
    }
  }
}

// The last posts of the others are read while they may go on, so the report says where they were.
std::string Store::report(const CollectiveCall& call) const {
  std::string said;
  const int unheard = silent();
  for (int peer = 0; peer < ranks_; ++peer) {
    const Last last = last_of(peer);
    const bool waits =
        peer == rank_ || (last.state == here && last.posted == rounds_ && peer != unheard);
    said += (peer > 0 ? "; rank " : "rank ") + std::to_string(peer);
    if (last.state == absent) {
      said += " never came";
    } else if (waits) {
      said += " waits in " + text(peer == rank_ ? call : last.call);
    } else {
      said += (last.state == ended    ? " has ended after "
               : last.state == failed ? " has failed after "
               : last.state == lost   ? " was lost after "
               : peer == unheard      ? " was silent after "
                                      : " was last in ") +
              text(last.call);
    }
  }
  return said;
}

}  // namespace lockstep
