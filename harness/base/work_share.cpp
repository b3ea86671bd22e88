#include "harness/base/work_share.h"

#include <charconv>

#include "harness/base/errors.h"

namespace lockstep {

WorkShare work_share(const std::string& text) {
  WorkShare share{-1, 0};
  const char* const end = text.data() + text.size();
  const auto [slash, error] = std::from_chars(text.data(), end, share.number);
  if (error == std::errc() && slash != end && *slash == '/') {
    const auto [rest, also] = std::from_chars(slash + 1, end, share.of);
    if (also == std::errc() && rest == end && share.number >= 0 && share.number < share.of)
      return share;
  }
  throw RequestError("--shard " + text + " is no i/n with i from 0 to n - 1");
}

}  // namespace lockstep
