# Outside headers that many files include, parsed once per target. Never ours: a change to one of those would build
# everything again. Nor may a file lean on what it finds here: LOCKSTEP_PCH=OFF builds without, and style.headers_alone
# compiles each header so.
option(LOCKSTEP_PCH "Parse outside headers once (GCC)" ON)
set(LOCKSTEP_PCH_HEADERS
    <algorithm> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <optional> <sstream> <stdexcept> <string>
    <string_view> <vector> <boost/pfr.hpp>)

# A compiler cache of the user's own need not take precompiled headers, and is the faster of the two.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CXX_COMPILER_LAUNCHER)
  set(LOCKSTEP_PCH OFF)
endif()

# Of ccache only that is asked which it needs to keep what sees a precompiled header; else it passes all of it on.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  if(LOCKSTEP_PCH)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
  endif()
endif()

# lockstep_precompile(target [headers...]): the common ones, and these. -fpch-preprocess is for ccache.
function(lockstep_precompile target)
  if(LOCKSTEP_PCH)
    target_precompile_headers(${target} PRIVATE ${LOCKSTEP_PCH_HEADERS} ${ARGN})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# lockstep_precompiled_from(target other): the same of a target whose flags are those of `other`; GCC looks whether they are.
function(lockstep_precompiled_from target other)
  if(LOCKSTEP_PCH)
    target_precompile_headers(${target} REUSE_FROM ${other})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()
