#include "harness/base/interrupts.h"

#include <csignal>

namespace lockstep {
namespace {

volatile std::sig_atomic_t interrupted = 0;  // How often, up to twice.
extern "C" void note_interrupt(int) { interrupted = interrupted == 0 ? 1 : 2; }

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  int_ = std::signal(SIGINT, note_interrupt);
  term_ = std::signal(SIGTERM, note_interrupt);
  hangup_ = std::signal(SIGHUP, note_interrupt);
  if (hangup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // As nohup asks.
  pipe_ = std::signal(SIGPIPE, SIG_IGN);
}

Interrupts::~Interrupts() {
  std::signal(SIGINT, int_);
  std::signal(SIGTERM, term_);
  std::signal(SIGHUP, hangup_);
  std::signal(SIGPIPE, pipe_);
}

bool Interrupts::came() { return interrupted != 0; }
bool Interrupts::came_again() { return interrupted > 1; }
void Interrupts::forget_again() {
  if (interrupted > 1) interrupted = 1;
}

}  // namespace lockstep
