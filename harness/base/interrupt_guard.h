// How a command ends after Ctrl-C, SIGTERM or the end of the terminal: with its reports written, no
// process and no temporary folder left behind, and status 5.
//
// A command asks Interrupts::came() where it looks at its budget, and ends by itself; whoever waits
// for a child process kills that (subprocess.h). Where it comes to no such place in time, because
// this process computes, a thread ends it: it has the reports written from what is there. A second
// signal does so at once.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <mutex>
#include <thread>

#include "harness/base/interrupts.h"

namespace lockstep {

class InterruptGuard {
 public:
  // Time for a command to come to a place where it asks.
  static constexpr double kGraceSeconds = 5;
  // One that is not the command itself but a process of it is silent.
  enum class Voice : bool { silent, speaks };
  explicit InterruptGuard(double grace_s = kGraceSeconds, Voice voice = Voice::speaks);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  // False in a child process, which has no such thread.
  bool is_of_this_process() const;
  // While one lives, its `write` is called by the thread where it ends the command, with the lock:
  // what it reads is changed under the lock alone. The last that was made goes first.
  class AtEnd {
   public:
    AtEnd(InterruptGuard& guard, std::function<void()> write);
    AtEnd(const AtEnd&) = delete;
    AtEnd& operator=(const AtEnd&) = delete;
    ~AtEnd();

   private:
    InterruptGuard& guard_;
    std::function<void()> before_;
  };
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // From here on the command writes its reports itself. It does not return where the thread does so
  // already.
  void take_over();

 private:
  void watch();
  void end(bool at_once);

  const double grace_s_;
  const Voice voice_;
  const pid_t process_;
  const Interrupts interrupts_;
  std::mutex mutex_;
  std::function<void()> write_;
  bool taken_over_ = false;
  std::array<int, 2> pipe_{-1, -1};
  std::thread thread_;
};

// The line on stderr that says that the command was interrupted.
void say_interrupted();

}  // namespace lockstep
