#include "engine/comm/turnstile.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/contract.h"

namespace lockstep {

Turnstile::Turnstile(int size, std::uint64_t seed)
    : states_(size, State::ready), order_(size), random_(seed) {
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
  if (!stopped_ && !has(State::ready) && has(State::waiting)) {
    if (has(State::ended)) {
      missing_ = stopped_ = true;
    } else {
      std::fill(states_.begin(), states_.end(), State::ready);
      shuffle();
    }
  }
  const auto may_run = [&](int thread) {
    return stopped_ ? !is(thread, State::ended) : is(thread, State::ready);
  };
  const auto next = std::find_if(order_.begin(), order_.end(), may_run);
  turn_ = next == order_.end() ? -1 : *next;
  passed_.notify_all();
}

void Turnstile::wait_for_turn(std::unique_lock<std::mutex>& lock, int thread) {
  passed_.wait(lock, [&] { return turn_ == thread; });
}

}  // namespace lockstep
