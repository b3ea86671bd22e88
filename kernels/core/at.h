// Indexes a container with a signed number or an enumerator, so that call sites need no cast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep {

template <class C>
decltype(auto) at(C& c, std::int64_t i) {
  return c[static_cast<std::size_t>(i)];
}
template <class C, class E>
requires std::is_enum_v<E>
decltype(auto) at(C& c, E i) { return c[static_cast<std::size_t>(i)]; }

}  // namespace lockstep
