#include "engine/comm/turnstile.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/contract.h"

namespace lockstep {

Turnstile::Turnstile(int size, std::uint64_t seed)
    : passed_(size),
      states_(size, State::ready),
      conditions_(size, nullptr),
      order_(size),
      random_(seed) {
  std::iota(order_.begin(), order_.end(), 0);
  shuffle();
  turn_ = order_.front();
}

void Turnstile::shuffle() {
  for (std::size_t left = order_.size(); left > 1; --left) {
    random_ += 0x9E3779B97F4A7C15u;
    std::swap(order_[left - 1], order_[mix64(random_) % left]);
  }
}

bool Turnstile::begin(int thread) {
  std::unique_lock lock(mutex_);
  wait_for_turn(lock, thread);
  return !stopped_;
}

Turnstile::Outcome Turnstile::arrive_and_wait(int thread) {
  std::unique_lock lock(mutex_);
  if (stopped_) return Outcome::stopped;
  state(thread) = State::waiting;
  return take_turn(lock, thread);
}

Turnstile::Outcome Turnstile::wait_until(int thread, const std::function<bool()>& holds) {
  std::unique_lock lock(mutex_);
  if (stopped_) return Outcome::stopped;
  if (holds()) return Outcome::all;
  at(conditions_, thread) = &holds;
  state(thread) = State::blocked;
  shuffle();
  return take_turn(lock, thread);
}

Turnstile::Outcome Turnstile::take_turn(std::unique_lock<std::mutex>& lock, int thread) {
  pass();
  wait_for_turn(lock, thread);
  if (std::exchange(missing_, false)) return Outcome::missing;
  return stopped_ ? Outcome::stopped : Outcome::all;
}

void Turnstile::end(int thread, bool failed) noexcept {
  const std::lock_guard lock(mutex_);
  state(thread) = State::ended;
  stopped_ |= failed;
  pass();
}

void Turnstile::cannot_begin(int first) noexcept {
  const std::lock_guard lock(mutex_);
  std::fill(states_.begin() + first, states_.end(), State::ended);
  stopped_ = true;
  if (turn_ >= first) pass();
}

bool Turnstile::has_ended(int thread) {
  const std::lock_guard lock(mutex_);
  return is(thread, State::ended);
}

void Turnstile::pass() {
  const auto has = [&](State s) { return std::count(states_.begin(), states_.end(), s) > 0; };
  const auto first = [&] {
    return std::find_if(order_.begin(), order_.end(), [&](int thread) { return may_run(thread); });
  };
  if (!stopped_ && first() == order_.end() && (has(State::waiting) || has(State::blocked))) {
    if (has(State::ended) || has(State::blocked)) {
      missing_ = stopped_ = true;
    } else {
      std::fill(states_.begin(), states_.end(), State::ready);
      shuffle();
    }
  }
  const auto next = first();
  turn_ = next == order_.end() ? -1 : *next;
  if (turn_ >= 0 && is(turn_, State::blocked)) state(turn_) = State::ready;
  if (turn_ >= 0) at(passed_, turn_).notify_one();
}

bool Turnstile::may_run(int thread) const {
  if (stopped_) return !is(thread, State::ended);
  return is(thread, State::ready) || (is(thread, State::blocked) && (*at(conditions_, thread))());
}

void Turnstile::wait_for_turn(std::unique_lock<std::mutex>& lock, int thread) {
  at(passed_, thread).wait(lock, [&] { return turn_ == thread; });
}

}  // namespace lockstep
