#include "harness/base/interrupts.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace lockstep {
namespace {

volatile std::sig_atomic_t interrupted = 0;  // How often, up to twice.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t wake_descriptor = -1;

extern "C" void note_interrupt(int signal) {
  if (interrupted == 0) first_signal = signal;
  interrupted = interrupted == 0 ? 1 : 2;
  if (wake_descriptor < 0) return;
  const int error = errno;
  const char byte = static_cast<char>(signal);
  // A pipe that is full holds enough of them.
  static_cast<void>(::write(wake_descriptor, &byte, 1) == 1);
  errno = error;
}

Interrupts* innermost = nullptr;

}  // namespace

Interrupts::Interrupts(Pipes pipes) : outer_(innermost), pipes_(pipes == Pipes::failed_writes) {
  interrupted = 0;
  first_signal = 0;
  int_ = std::signal(SIGINT, note_interrupt);
  term_ = std::signal(SIGTERM, note_interrupt);
  hangup_ = std::signal(SIGHUP, note_interrupt);
  if (hangup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // As nohup asks.
  if (pipes_) pipe_ = std::signal(SIGPIPE, SIG_IGN);
  innermost = this;
}

Interrupts::~Interrupts() {
  restore();
  if (pipes_) std::signal(SIGPIPE, pipe_);
  innermost = outer_;
}

void Interrupts::restore() const {
  std::signal(SIGINT, int_);
  std::signal(SIGTERM, term_);
  std::signal(SIGHUP, hangup_);
}

bool Interrupts::came() { return interrupted != 0; }
bool Interrupts::came_again() { return interrupted > 1; }
void Interrupts::forget_again() {
  if (interrupted > 1) interrupted = 1;
}
int Interrupts::first() { return first_signal; }

std::string Interrupts::name() {
  const char* name = first() == 0 ? nullptr : ::sigabbrev_np(first());
  return name == nullptr ? "" : std::string("SIG") + name;
}

void Interrupts::leave_to_child() {
  wake_descriptor = -1;
  for (; innermost != nullptr; innermost = innermost->outer_) innermost->restore();
  interrupted = 0;
  first_signal = 0;
}

void Interrupts::wake(int descriptor) { wake_descriptor = descriptor; }

}  // namespace lockstep
