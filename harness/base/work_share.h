// The share of one of several machines that do a list of work together.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// It does what leaves `number` when divided by `of`.
struct WorkShare {
  std::int64_t number = 0, of = 1;
  bool has(std::int64_t i) const { return i % of == number; }
};

// Parses "i/n", the form of --shard. Throws RequestError for anything else.
WorkShare work_share(const std::string& text);

}  // namespace lockstep
