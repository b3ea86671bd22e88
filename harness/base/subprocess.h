// A function in a process of its own: fork, two pipes, a watchdog.
#pragma once

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
// Returns the line of `said` that tells why a process ended: that of a broken contract, else the
// last.
std::string last_words(std::string said);
// Its stderr goes to ours as well, if `echo`.
ChildEnd run_in_child(const std::function<std::string()>& body, double timeout_s, bool echo = true);

}  // namespace lockstep
