// How long a campaign waits before its next line of progress where stderr is no terminal.
#pragma once

#include <algorithm>

namespace lockstep {

// Ten seconds, then twice as long each time, up to five minutes: a night of five hours has about
// sixty lines, and the first ones tell soon that it runs.
class LineInterval {
 public:
  double seconds() const { return seconds_; }
  void shown() { seconds_ = std::min(2 * seconds_, 300.0); }

 private:
  double seconds_ = 10;
};

}  // namespace lockstep
