#include "harness/base/progress.h"

#include <unistd.h>

#include <cstdio>

#include "harness/base/terminal.h"

namespace lockstep {

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& line) {
  if (quiet_) return;
  shown_ = true;
  // A line that wraps could not be written over.
  const std::size_t width = terminal_at(STDERR_FILENO).width;
  const std::string fits = width > 0 && line.size() >= width ? line.substr(0, width - 1) : line;
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", fits.c_str());
  std::fflush(stderr);
}

void Progress::replace(const std::string& line) {
  if (terminal_) show(line);
}

void Progress::say(const std::string& line) {
  if (quiet_) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::clear() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace lockstep
