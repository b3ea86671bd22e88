# One target per folder and one line per test.
set(LOCKSTEP_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These follow the optimiser and raise false alarms inside std::string and std::vector, others in each version (GCC
  # bugs 105651, 105562). clang-tidy and the sanitizers look for what they mean.
  list(APPEND LOCKSTEP_WARNINGS -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread
       -Wno-array-bounds)
  # Older versions name it as unknown beside every other error.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND LOCKSTEP_WARNINGS -Wno-dangling-reference)
  endif()
endif()
# Messages name a file by its path in the source tree, wherever that was built. (A compiler cache may say ../ for it.)
foreach(root ${PROJECT_SOURCE_DIR}/ ../)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${root}=> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fmacro-prefix-map=${root}=>)
endforeach()
# arithmetic.md 0: no contraction, nothing reassociated. The last two flags change no value; without them loops with
# square roots and selects do not vectorise.
set(LOCKSTEP_ARITHMETIC -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND LOCKSTEP_ARITHMETIC -march=x86-64-v3)
endif()
# --fmad=false: no contraction on the device; nvcc's host pass needs its own flag.
set(LOCKSTEP_CUDA_ARITHMETIC --fmad=false -Xcompiler=-ffp-contract=off -gencode=arch=compute_90a,code=sm_90a)

# Programs and tests open the CUDA object at run time. They export their symbols, so that program and object share one
# planted fault and one DeviceError, and the C++ runtime stays a shared library, of which a process has one copy:
# what one side allocates or throws, the other may free or catch. tests/install proves it.
set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR}/lib)
set(LOCKSTEP_TEST_EXIT_SKIPPED 77)  # tests/on_gpu.sh: this machine has too few GPUs; tests/on_two_machines.sh.

# lockstep_module(name SOURCES ... USES ... [PRECOMPILED [headers...]] [COLD]): a static library lockstep::name.
# PRECOMPILED: the common outside headers, and these. COLD: nothing waits for its code, so it is optimised less, which
# takes a third less to compile.
function(lockstep_module name)
  cmake_parse_arguments(arg "COLD" "" "SOURCES;USES;PRECOMPILED" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_include_directories(lockstep_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(lockstep_${name} PRIVATE ${LOCKSTEP_WARNINGS} PUBLIC ${LOCKSTEP_ARITHMETIC})
  if(arg_COLD)
    target_compile_options(lockstep_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  set_target_properties(lockstep_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_USES} Threads::Threads)
  if("PRECOMPILED" IN_LIST ARGN)
    lockstep_precompile(lockstep_${name} ${arg_PRECOMPILED})
  endif()
endfunction()

# lockstep_ctest(name COMMAND program arguments... [LABELS ...] [GPUS n] [TIMEOUT s] [SKIPS] [ALONE] [SOURCE]): one entry
# of ctest, here and in the installed tree. Arguments may hold @ROOT@ (the folder that has scenarios/ and tests/), @BIN@
# (that of `lockstep`) and @TESTS@ (that of the test programs). Labels: host, gpu, multi_gpu, net, slow, canary, corrupts. A test for a
# GPU takes one of CTest's resource specification; one with the label multi_gpu takes GPUS of them (2 if it does not say)
# where the machine has so many (tests/several_gpus.cmake), and runs alone, since without a specification nobody else
# would leave them to it. Both are skipped where there are too few. A test with the label net makes machines of its own
# (tests/on_two_machines.sh), and is skipped where that is forbidden. SKIPS: the program itself says by its status that this machine has not what the test
# takes. ALONE: it measures what all programs of a machine share. SOURCE: it reads the source tree, so it is here alone.
function(lockstep_ctest name)
  cmake_parse_arguments(arg "SKIPS;ALONE;SOURCE" "TIMEOUT;GPUS" "COMMAND;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS host)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(command ${arg_COMMAND})
  set(gpus 0)
  if("multi_gpu" IN_LIST arg_LABELS)
    set(gpus 2)
    if(arg_GPUS)
      set(gpus ${arg_GPUS})
    endif()
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TESTS_FOR_SEVERAL_GPUS ${name} ${gpus})
  elseif("gpu" IN_LIST arg_LABELS)
    set(gpus 1)
  endif()
  if(gpus)
    set(command bash @ROOT@/tests/on_gpu.sh ${gpus} ${command})
  endif()
  if("net" IN_LIST arg_LABELS)
    set(command bash @ROOT@/tests/on_two_machines.sh ${command})
    set(arg_SKIPS ON)
  endif()
  set(properties "LABELS \"${arg_LABELS}\" TIMEOUT ${arg_TIMEOUT}")
  if(gpus OR arg_SKIPS)
    string(APPEND properties " SKIP_RETURN_CODE ${LOCKSTEP_TEST_EXIT_SKIPPED}")
  endif()
  if(gpus EQUAL 1)
    string(APPEND properties " RESOURCE_GROUPS 1,gpus:1")
  endif()
  if(gpus GREATER 1 OR arg_ALONE)
    string(APPEND properties " RUN_SERIAL TRUE")
  endif()

  lockstep_place("${command}" here "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/bin" "${PROJECT_BINARY_DIR}/tests/bin")
  set(environment "LOCKSTEP_ROOT=${PROJECT_SOURCE_DIR};LOCKSTEP_BIN=${PROJECT_BINARY_DIR}/bin")
  add_test(NAME ${name} COMMAND ${here})
  # Not in a folder `scenarios`, where rule Y07 asks more of a file.
  set(folder ${PROJECT_BINARY_DIR})
  cmake_language(EVAL CODE "set_tests_properties([=[${name}]=] PROPERTIES ${properties} WORKING_DIRECTORY [=[${folder}]=] ENVIRONMENT [=[${environment}]=])")
  if(NOT arg_SOURCE)
    lockstep_installed_ctest(${name} "${command}" "${properties}")
  endif()
endfunction()

# Puts folders where a command has placeholders.
function(lockstep_place command result root bin tests)
  string(REPLACE "@ROOT@" "${root}" command "${command}")
  string(REPLACE "@BIN@" "${bin}" command "${command}")
  string(REPLACE "@TESTS@" "${tests}" command "${command}")
  set(${result} "${command}" PARENT_SCOPE)
endfunction()

# The time of a test is in the code that it calls; its own templates are quicker to compile so.
set(LOCKSTEP_TEST_OPTIONS ${LOCKSTEP_WARNINGS} $<$<CONFIG:Release>:-Og>)

# lockstep_test_program(folder USES ... [NEEDS ...]): the program of the tests in tests/folder, engine/train becoming
# engine_train_test. NEEDS: what is built before it, because a test runs or opens that.
function(lockstep_test_program folder)
  cmake_parse_arguments(arg "" "" "USES;NEEDS" ${ARGN})
  string(REPLACE "/" "_" target "${folder}_test")
  add_executable(${target})
  target_compile_options(${target} PRIVATE ${LOCKSTEP_TEST_OPTIONS})
  target_link_libraries(${target} PRIVATE ${arg_USES} lockstep::test_main)
  lockstep_precompiled_from(${target} lockstep_test_headers)
  if(arg_NEEDS)
    add_dependencies(${target} ${arg_NEEDS})
  endif()
  set_target_properties(
    ${target} PROPERTIES ENABLE_EXPORTS ON RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS ${target})
endfunction()

# The words that run the tests of tests/path_test.cpp alone: in the program of its folder, or in `program`.
function(lockstep_test_command path program result)
  if(NOT program)
    get_filename_component(program "${path}" DIRECTORY)
    string(REPLACE "/" "_" program "${program}_test")
  endif()
  set(${result} @TESTS@/${program} --file=${path}_test.cpp PARENT_SCOPE)
endfunction()

# lockstep_test(top/folder/name LABELS ... [PROGRAM target] [TIMEOUT s] [ALONE] [SOURCE]): tests/top/folder/name_test.cpp,
# a file of its folder's program or of `target`, becomes the ctest top.name, which runs the tests of that file alone.
function(lockstep_test path)
  cmake_parse_arguments(arg "ALONE;SOURCE" "TIMEOUT;PROGRAM" "LABELS" ${ARGN})
  string(REGEX REPLACE "/.*" "" top "${path}")
  get_filename_component(name "${path}" NAME)
  lockstep_test_command(${path} "${arg_PROGRAM}" command)
  list(GET command 0 program)
  string(REPLACE "@TESTS@/" "" program "${program}")
  target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/${path}_test.cpp)
  set(flags "")
  foreach(flag ALONE SOURCE)
    if(arg_${flag})
      list(APPEND flags ${flag})
    endif()
  endforeach()
  lockstep_ctest(${top}.${name} COMMAND ${command} LABELS ${arg_LABELS} TIMEOUT "${arg_TIMEOUT}" ${flags})
endfunction()

# lockstep_test_variant(ctest OF top/folder/name [ENV variables...] [FILTER pattern] LABELS ... [TIMEOUT s] [SOURCE]): the
# tests of a file once more, in another environment or fewer of them.
function(lockstep_test_variant name)
  cmake_parse_arguments(arg "SOURCE" "OF;FILTER;TIMEOUT" "ENV;LABELS" ${ARGN})
  lockstep_test_command(${arg_OF} "" command)
  if(arg_FILTER)
    list(APPEND command "--gtest_filter=${arg_FILTER}")
  endif()
  if(arg_ENV)
    list(PREPEND command env ${arg_ENV})
  endif()
  set(source "")
  if(arg_SOURCE)
    set(source SOURCE)
  endif()
  lockstep_ctest(${name} COMMAND ${command} LABELS ${arg_LABELS} TIMEOUT "${arg_TIMEOUT}" ${source})
endfunction()

# lockstep_cuda_test(top/folder/name): tests/top/folder/name_test.cu, a program by itself with device code, for a GPU.
function(lockstep_cuda_test path)
  string(REGEX REPLACE "/.*/" "." name "${path}")
  string(REPLACE "/" "_" target "${path}_test")
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}_test.cu)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${LOCKSTEP_CUDA_ARITHMETIC})
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  lockstep_ctest(${name} COMMAND @TESTS@/${target} LABELS gpu)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS ${target})
endfunction()

# lockstep_tests_for_several_gpus(result): text for ctest to read behind all tests; it names tests and counts of GPUs.
function(lockstep_tests_for_several_gpus result)
  get_property(tests GLOBAL PROPERTY LOCKSTEP_TESTS_FOR_SEVERAL_GPUS)
  set(${result} "set(tests_for_several_gpus \"${tests}\")\ninclude(\"\${root}/tests/several_gpus.cmake\")\n" PARENT_SCOPE)
endfunction()

# lockstep_scenario_tests(): every YAML file under scenarios/ is a test by itself, on the simulated device and, where
# the CUDA object is built, on a GPU; those of library/nccl, whose ranks take a GPU each, on several GPUs alone, where
# `lockstep verify` skips what asks for more than there are. Without CUDA such a file is a test that is skipped. A file
# that is dropped in is a test after the next build; ci.nccl_ranks says so if it belongs into that folder.
function(lockstep_scenario_tests)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/scenarios/*.yaml
       ${PROJECT_SOURCE_DIR}/scenarios/*.yml)
  set(verify @BIN@/lockstep verify --quiet --skip-code ${LOCKSTEP_TEST_EXIT_SKIPPED})
  foreach(file ${files})
    # The rooms of the library are for readers; a test keeps its name when its file moves from one to another.
    string(REGEX REPLACE "^scenarios/|\\.yaml$" "" name "${file}")
    string(REGEX REPLACE "^library/(fsdp|graphs|machinery|model|moe|nccl|cudnn|offload|packing|recompute)/" "library/" name "${name}")
    string(REPLACE "/" "." name "${name}")
    if(file MATCHES "^scenarios/library/nccl/" AND TARGET lockstep_cuda)
      set(ranks 2)  # ci.nccl_ranks holds names to what the files ask for.
      if(name MATCHES "-four-")
        set(ranks 4)
      endif()
      lockstep_ctest(scenario.${name}.cuda COMMAND ${verify} --device cuda @ROOT@/${file} LABELS gpu multi_gpu GPUS ${ranks})
      continue()
    endif()
    lockstep_ctest(scenario.${name} COMMAND ${verify} --device sim @ROOT@/${file} LABELS host SKIPS)
    # A graph on a GPU cannot hold an exchange that the host makes, so no machine could run these there; library/nccl has
    # the same scenarios over NCCL.
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} host_exchange REGEX "^parallel:.*transport: shm")
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} whole_graph REGEX "^cuda_graph:.*impl: full_iteration")
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} experts_apart REGEX "^parallel:.*expert: ")
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} without_experts REGEX "^cuda_graph:.*(impl: none|modules:)")
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} with_experts REGEX "^cuda_graph:.*modules:.*[[ ]moe[],]")
    if(whole_graph OR (experts_apart AND (with_experts OR NOT without_experts)))
      set(captured_exchange TRUE)
    else()
      set(captured_exchange FALSE)
    endif()
    if(TARGET lockstep_cuda AND NOT (host_exchange AND captured_exchange))
      lockstep_ctest(scenario.${name}.cuda COMMAND ${verify} --device cuda @ROOT@/${file} LABELS gpu)
    endif()
  endforeach()
endfunction()
