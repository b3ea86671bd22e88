// Progress on stderr: one line rewritten in place on a terminal, plain lines elsewhere, nothing
// when quiet.
#pragma once

#include <string>

namespace lockstep {

class Progress {
 public:
  explicit Progress(bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void show(const std::string& line);
  void replace(const std::string& line);  // On a terminal alone.
  void say(const std::string& line);      // It stays there, too.
  void clear();                           // Before something else is written to the terminal.

 private:
  bool quiet_, terminal_, shown_ = false;
};

}  // namespace lockstep
