// MD5, to tell whether documents are still the same bytes; not for secrets. `md5sum` prints the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class Md5 {
 public:
  void add(std::string_view bytes);
  std::string hex();  // 32 digits; ends the sum.

 private:
  void block(const unsigned char* bytes);

  std::array<std::uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::string rest_;  // Bytes of a block that is not full yet.
  std::uint64_t length_ = 0;
};

}  // namespace lockstep
