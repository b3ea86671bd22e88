# Writes the source that knows where each fault is planted, and only if that changed:
# cmake -DROOT=... -DOUT=... -P fault_places.cmake
set(rows "")
file(GLOB_RECURSE sources ${ROOT}/kernels/host/*.cpp ${ROOT}/kernels/host/*.h ${ROOT}/engine/*.cpp ${ROOT}/engine/*.h)
list(SORT sources)
foreach(source ${sources} ${ROOT}/harness/inject/fault_aliases.cpp)
  file(RELATIVE_PATH name ${ROOT} ${source})
  file(READ ${source} text)
  string(REGEX MATCHALL "(faulty?(<[^>]*>)?\\([ \n]*|FaultAlias{[ \n]*)\"[a-z0-9-]+\"" points "${text}")
  foreach(point ${points})
    string(REGEX REPLACE ".*\"([a-z0-9-]+)\"" "\\1" fault "${point}")
    string(APPEND rows "    {\"${fault}\", \"${name}\"},\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[#include <utility>

#include "harness/inject/fault_table.h"

namespace lockstep {

std::string_view fault_place(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kPlaces[] = {
@rows@  };
  for (const auto& [fault, file] : kPlaces) {
    if (fault == name) return file;
  }
  return "";
}

}  // namespace lockstep
]])
