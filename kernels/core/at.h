// Indexes a container with a signed number, so that call sites need no cast.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

template <class C>
auto& at(C& c, std::int64_t i) {
  return c[static_cast<std::size_t>(i)];
}

}  // namespace lockstep
