#include "harness/base/interrupt_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/removed_at_exit.h"
#include "harness/base/stopwatch.h"
#include "harness/base/write_file.h"

namespace lockstep {
namespace {

// A launcher may send one signal to the process and to its group, or two kinds, at once.
constexpr double kOneEventSeconds = 1;

void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// The text that was printed is part of the result; a thread that is stuck in printing keeps its
// lock.
void flush_what_was_printed() {
  if (::ftrylockfile(stdout) != 0) return;
  std::fflush(stdout);
  ::funlockfile(stdout);
}

}  // namespace

InterruptGuard::InterruptGuard(double grace_s, Voice voice)
    : grace_s_(grace_s),
      voice_(voice),
      process_(::getpid()),
      interrupts_(Interrupts::Pipes::as_before) {
  if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw WorldError(std::string("pipe: ") + std::strerror(errno));
  thread_ = std::thread([this] { watch(); });
  Interrupts::wake(pipe_[1]);
}

InterruptGuard::~InterruptGuard() {
  Interrupts::wake(-1);
  const char end = 0;
  static_cast<void>(::write(pipe_[1], &end, 1) == 1);
  thread_.join();
  for (const int descriptor : pipe_) ::close(descriptor);
}

bool InterruptGuard::is_of_this_process() const { return process_ == ::getpid(); }

InterruptGuard::AtEnd::AtEnd(InterruptGuard& guard, std::function<void()> write) : guard_(guard) {
  const auto held = guard_.lock();
  before_ = std::exchange(guard_.write_, std::move(write));
}

InterruptGuard::AtEnd::~AtEnd() {
  const auto held = guard_.lock();
  guard_.write_ = std::move(before_);
}

void InterruptGuard::take_over() {
  const auto held = lock();
  taken_over_ = true;
}

void InterruptGuard::watch() {
  block_signals();
  std::optional<Stopwatch> first;
  bool waits = false;  // For the command to end by itself.
  while (true) {
    const double left = waits ? std::max(0.0, grace_s_ - first->seconds()) : 0;
    pollfd waiting{pipe_[0], POLLIN, 0};
    ::poll(&waiting, 1, waits ? static_cast<int>(left * 1e3) + 1 : -1);
    char byte = 0;
    if (::read(pipe_[0], &byte, 1) == 1) {
      if (byte == 0) return;
      if (first && first->seconds() >= kOneEventSeconds) end(true);
      if (first) continue;
      first.emplace();
      waits = true;
    } else if (waits && first->seconds() >= grace_s_) {
      end(false);
      waits = false;
    }
  }
}

// Returns only where the command writes its reports itself, and nobody asked again.
void InterruptGuard::end(bool at_once) {
  const auto held = lock();
  if (taken_over_ && !at_once) return;
  if (!taken_over_ && write_) {
    try {
      write_();
    } catch (const std::exception& error) {
      write_all(STDERR_FILENO, std::string("lockstep: ") + error.what() + "\n");
    }
  }
  if (!taken_over_ && voice_ == Voice::speaks) say_interrupted();
  flush_what_was_printed();
  RemovedAtExit::remove_now();
  ::_exit(static_cast<int>(ExitStatus::gave_up));
}

void say_interrupted() {
  const char* clear = ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
  write_all(STDERR_FILENO, clear + ("lockstep: interrupted by " + Interrupts::name()) +
                               ": what was done until then is reported\n");
}

}  // namespace lockstep
