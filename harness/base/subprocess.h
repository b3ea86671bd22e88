// A function in a process of its own: fork, two pipes, a watchdog.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace lockstep {

// The end of a child that computed a text: its output, or how it died.
struct ChildEnd {
  bool finished = false;  // Exited with status 0.
  bool timed_out = false;
  int signal = 0;          // The signal that killed it, 0 for none.
  int status = 0;          // Exit status.
  std::string output;      // What `body` returned.
  std::string last_words;  // The last line of its stderr that matters.
};
// The begin of a line behind that of a broken contract, which says in which op it broke,
// and what differed before.
inline constexpr const char* kRunningOp = "lockstep: the op that ran: ";

// Returns the line of `said` that tells why a process ended: that of a broken contract, else the
// last.
std::string last_words(std::string said);
// Its stderr goes to ours as well, if `echo`. Interrupted where a signal came: the child is killed.
ChildEnd run_in_child(const std::function<std::string()>& body, double timeout_s, bool echo = true);

// ---- A child with all that it starts ------------------------------------------------------------

// In the child, after fork: it dies with its parent, since a watchdog there is gone then, and is a
// group of its own, so that signals of a terminal reach the parent alone, which decides.
void be_a_child_of(pid_t parent);
// In the parent.
void watch_over(pid_t child);
bool has_ended(pid_t child);  // Without reaping it.
// Waits for its end, kills and reaps what it started, and removes the run folders that it left.
// Returns its status, as waitpid() does.
int reap_with_its_group(pid_t child);

}  // namespace lockstep
