// The name of a struct's member, which C++20 does not give and the compiler spells all the same.
// Host code only.
#pragma once

#include <boost/pfr.hpp>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {
namespace detail {

template <class T>
struct Named {
  T value;
};
template <class T>
extern const Named<T> nowhere;  // Never defined: only its members' addresses are spelled.

template <auto kMember>
constexpr std::string_view spelled() {
  return __PRETTY_FUNCTION__;  // "... kMember = (& nowhere<Op>.Named<Op>::value.Op::gain); ..."
}
template <class T, std::size_t kIndex>
constexpr auto address_of_member() {
  return &boost::pfr::get<kIndex>(nowhere<T>.value);
}

constexpr bool is_in_names(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
// Returns the last name in the template argument's text: before the first ';' or the final ']'.
constexpr std::string_view last_name(std::string_view text) {
  std::string_view all = text.substr(text.find("kMember = "));
  all = all.substr(0, all.find_first_of(";]"));
  std::size_t end = all.size();
  while (end > 0 && !is_in_names(all[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_in_names(all[begin - 1])) --begin;
  return all.substr(begin, end - begin);
}

}  // namespace detail

template <class T, std::size_t kIndex>
const char* field_name() {
  static const std::string name(
      detail::last_name(detail::spelled<detail::address_of_member<T, kIndex>()>()));
  return name.c_str();
}

}  // namespace lockstep
