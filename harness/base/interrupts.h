// Lets a command ask for Ctrl-C, SIGTERM and the end of the terminal while one of these lives, and
// turns a pipe without a reader into a failed write.
#pragma once

#include <string>

namespace lockstep {

class Interrupts {
 public:
  // A pipe that nobody reads is a failed write then, or a death as before.
  enum class Pipes : bool { as_before, failed_writes };
  explicit Interrupts(Pipes pipes = Pipes::failed_writes);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();
  // Whether one came since this object was made.
  static bool came();
  // Whether another one came since forget_again(), because one event may send several.
  static bool came_again();
  static void forget_again();
  // The first that came: its number, and "SIGTERM". 0 and "" for none.
  static int first();
  static std::string name();
  // In a child process: signals do what they did before any of these was made, and none has come.
  static void leave_to_child();
  // Each signal writes its number to this descriptor as a byte; -1 for none.
  static void wake(int descriptor);

 private:
  void restore() const;

  Interrupts* outer_;
  void (*int_)(int);
  void (*term_)(int);
  void (*hangup_)(int);
  void (*pipe_)(int) = nullptr;
  bool pipes_;
};

}  // namespace lockstep
