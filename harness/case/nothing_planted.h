// A judge that is the engine itself runs without what is planted in the runs that it judges.
#pragma once

#include <string>

#include "kernels/core/fault.h"

namespace lockstep {

// Until it dies, nothing is planted in this process.
class NothingPlanted {
 public:
  NothingPlanted() : planted_(planted_fault()) { plant_fault(""); }
  ~NothingPlanted() { plant_fault(planted_); }
  NothingPlanted(const NothingPlanted&) = delete;
  NothingPlanted& operator=(const NothingPlanted&) = delete;

 private:
  std::string planted_;
};

}  // namespace lockstep
