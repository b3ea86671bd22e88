// Ctrl-C, SIGTERM and the end of the terminal as a question, while one of these lives; a pipe that
// nobody reads is a failed write.
#pragma once

namespace lockstep {

class Interrupts {
 public:
  Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();
  // Since this object was made.
  static bool came();
  // Once more, since forget_again(): one event may send several.
  static bool came_again();
  static void forget_again();

 private:
  void (*int_)(int);
  void (*term_)(int);
  void (*hangup_)(int);
  void (*pipe_)(int);
};

}  // namespace lockstep
