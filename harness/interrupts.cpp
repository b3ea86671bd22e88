#include "harness/interrupts.h"

#include <csignal>

namespace lockstep {
namespace {

volatile std::sig_atomic_t interrupted = 0;
extern "C" void note_interrupt(int) { interrupted = 1; }

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  int_ = std::signal(SIGINT, note_interrupt);
  term_ = std::signal(SIGTERM, note_interrupt);
  pipe_ = std::signal(SIGPIPE, SIG_IGN);
}

Interrupts::~Interrupts() {
  std::signal(SIGINT, int_);
  std::signal(SIGTERM, term_);
  std::signal(SIGPIPE, pipe_);
}

bool Interrupts::came() { return interrupted != 0; }

}  // namespace lockstep
