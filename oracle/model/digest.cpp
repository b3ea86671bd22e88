#include "oracle/model/digest.h"

namespace lockstep::oracle {

std::string Digest::text() const {
  std::string digits;
  for (const std::uint64_t half : {high_, low_}) {
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(half >> shift) & 15];
  }
  return digits;
}

}  // namespace lockstep::oracle
