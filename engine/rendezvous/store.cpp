#include "engine/rendezvous/store.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

Store::Store(int rank, int ranks, double deadline_s)
    : rank_(rank),
      ranks_(ranks),
      deadline_(
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline_s))),
      posts_(ranks) {
  require(rank >= 0 && rank < ranks, "a rank is one of the ranks");
}

// ---- A round ------------------------------------------------------------------------------------

std::byte* Store::begin() {
  if (local_barrier) local_barrier();
  carry_all();
  await(Mark::taken);
  return outbox();
}

void Store::post(const CollectiveCall& call, std::size_t filled) {
  require(filled <= kOutbox, "what is left for the others fits the outbox");
  if (on_post) on_post(call, filled);
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

// ---- Letters ------------------------------------------------------------------------------------

Store::Post& Store::post_of(int peer) { return at(posts_, peer); }

void Store::send(int peer, const CollectiveCall& call, std::span<const std::byte> data) {
  const std::uint64_t length = data.size();
  std::vector<std::byte> all(sizeof call + sizeof length + data.size());
  std::memcpy(all.data(), &call, sizeof call);
  std::memcpy(all.data() + sizeof call, &length, sizeof length);
  if (!data.empty())
    std::memcpy(all.data() + sizeof call + sizeof length, data.data(), data.size());
  post_of(peer).out.push_back(std::move(all));
  carry();
}

bool Store::carry() {
  bool waits = false;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    Post& post = post_of(peer);
    while (take_part(peer, post.in)) continue;
    open_letters(peer, post);
    while (!post.out.empty()) {
      const std::vector<std::byte>& first = post.out.front();
      const std::size_t count = std::min(kMostOfPart, first.size() - post.sent);
      if (!put_part(peer, std::span(first).subspan(post.sent, count))) break;
      post.sent += count;
      if (post.sent < first.size()) continue;
      post.out.pop_front();
      post.sent = 0;
    }
    waits = waits || !post.out.empty();
  }
  return waits;
}

void Store::open_letters(int peer, Post& post) const {
  std::uint64_t length = 0;
  constexpr std::size_t kHead = sizeof(CollectiveCall) + sizeof length;
  std::size_t first = 0;
  while (post.in.size() - first >= kHead) {
    Letter letter;
    std::memcpy(&letter.call, post.in.data() + first, sizeof letter.call);
    std::memcpy(&length, post.in.data() + first + sizeof letter.call, sizeof length);
    if (!is_well_formed_in_letter(letter.call) || length > kLongestWords)
      throw BadFrame("rank " + std::to_string(number_of(peer)) + " sent no letter");
    if (post.in.size() - first - kHead < length) break;
    const auto begin = post.in.begin() + static_cast<std::ptrdiff_t>(first + kHead);
    letter.data.assign(begin, begin + static_cast<std::ptrdiff_t>(length));
    post.letters.push_back(std::move(letter));
    first += kHead + length;
  }
  post.in.erase(post.in.begin(), post.in.begin() + static_cast<std::ptrdiff_t>(first));
}

// A rank that makes a call with all others has received all that it needs before.
void Store::carry_all() {
  const Clock::time_point deadline = Clock::now() + deadline_;
  while (carry()) {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_ || post_of(peer).out.empty()) continue;
      CollectiveCall call;
      std::memcpy(&call, post_of(peer).out.front().data(), sizeof call);
      require_in_time(peer, call, deadline);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Letter Store::receive(int peer, const CollectiveCall& awaited) {
  const Clock::time_point deadline = Clock::now() + deadline_;
  Post& post = post_of(peer);
  for (;;) {
    const Progress seen = progress_of(peer, Mark::taken);  // Read before what it has sent.
    carry();
    const auto found = std::ranges::find_if(
        post.letters, [&](const Letter& letter) { return letter.call.is_on_the_way_of(awaited); });
    if (found != post.letters.end()) {
      Letter letter = std::move(*found);
      post.letters.erase(found);
      return letter;
    }
    if (seen.gone >= 0 || Clock::now() >= deadline) require_in_time(peer, awaited, deadline);
    wait_for_letters(peer);
  }
}

// While letters of this rank wait to go out, their readers decide when they may.
void Store::wait_for_letters(int peer) {
  const bool waits =
      std::ranges::any_of(posts_, [](const Post& post) { return !post.out.empty(); });
  if (!waits) return wait_for_part(peer);
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

std::optional<Letter> Store::poll(int peer, std::uint8_t group) {
  carry();
  Post& post = post_of(peer);
  const auto found = std::ranges::find_if(
      post.letters, [=](const Letter& letter) { return letter.call.group == group; });
  if (found == post.letters.end()) return {};
  Letter letter = std::move(*found);
  post.letters.erase(found);
  return letter;
}

void Store::require_in_time(int peer, const CollectiveCall& call,
                            Clock::time_point deadline) const {
  const Progress seen = progress_of(peer, Mark::taken);
  const bool left = seen.gone >= 0;
  if (!left && Clock::now() < deadline) return;
  const int dead = one_that_is(lost);
  const int who = left && dead >= 0 ? dead : left ? seen.gone : peer;
  throw CollectiveHang("rank " + std::to_string(number_of(who)) +
                       (left ? " has left: " : " did not come " + within() + ": ") + report(call));
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
                             std::to_string(number_of(left ? (dead >= 0 ? dead : seen.gone)
                                                      : unheard >= 0 ? unheard
                                                                     : peer)) +
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
    said += (peer > 0 ? "; rank " : "rank ") + std::to_string(number_of(peer));
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
