#include "harness/judge/seen_difference.h"

#include <array>
#include <cstdio>

namespace lockstep {
namespace {

std::array<char, 400> seen{};  // No string: a handler reads it.

}  // namespace

void forget_seen_difference() { seen[0] = '\0'; }

void note_seen_difference(const std::string& words) {
  if (seen[0] == '\0') std::snprintf(seen.data(), seen.size(), "%s", words.c_str());
}

const char* seen_difference() { return seen.data(); }

}  // namespace lockstep
