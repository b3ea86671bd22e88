// For clang-tidy alone: Clang 14 has not the builtin that libstdc++ makes std::source_location of.
#pragma once

#include <source_location>

#if defined(__clang__) && !__has_builtin(__builtin_source_location)
namespace std {

struct source_location {
  static constexpr source_location current() { return {}; }
  constexpr unsigned line() const { return 0; }
  constexpr unsigned column() const { return 0; }
  constexpr const char* file_name() const { return ""; }
  constexpr const char* function_name() const { return ""; }
};

}  // namespace std
#endif
