# One target per folder and one line per test.
set(LOCKSTEP_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter)
# arithmetic.md 0: no contraction, nothing reassociated. The last two flags change no value; without them loops with
# square roots and selects do not vectorise.
set(LOCKSTEP_ARITHMETIC -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND LOCKSTEP_ARITHMETIC -march=x86-64-v3)
endif()

# lockstep_module(name SOURCES ... USES ...): a static library lockstep::name.
function(lockstep_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_include_directories(lockstep_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(lockstep_${name} PRIVATE ${LOCKSTEP_WARNINGS} PUBLIC ${LOCKSTEP_ARITHMETIC})
  set_target_properties(lockstep_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_USES} Threads::Threads)
endfunction()

# lockstep_test(folder/name USES ... LABELS ...): tests/folder/name_test.cpp becomes the ctest folder.name.
function(lockstep_test path)
  cmake_parse_arguments(arg "" "" "USES;LABELS" ${ARGN})
  string(REPLACE "/" "." name "${path}")
  string(REPLACE "/" "_" target "${path}_test")
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/${path}_test.cpp)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_WARNINGS})
  target_link_libraries(${target} PRIVATE ${arg_USES} lockstep::test_main)
  add_test(NAME ${name} COMMAND ${target})
  if(NOT arg_LABELS)
    set(arg_LABELS host)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()
