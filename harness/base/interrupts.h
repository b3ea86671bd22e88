// Lets a command ask for Ctrl-C, SIGTERM and the end of the terminal while one of these lives, and
// turns a pipe without a reader into a failed write.
#pragma once

namespace lockstep {

class Interrupts {
 public:
  Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();
  // Whether one came since this object was made.
  static bool came();
  // Whether another one came since forget_again(), because one event may send several.
  static bool came_again();
  static void forget_again();

 private:
  void (*int_)(int);
  void (*term_)(int);
  void (*hangup_)(int);
  void (*pipe_)(int);
};

}  // namespace lockstep
