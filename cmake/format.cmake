# `format` rewrites, `format-check` only looks. One version for everybody: others break lines in other places.
find_program(CLANG_FORMAT clang-format-14)
if(CLANG_FORMAT)
  set(check ${CMAKE_COMMAND} -E env python3 ${PROJECT_SOURCE_DIR}/tests/style/format.py --root ${PROJECT_SOURCE_DIR})
  add_custom_target(format-check COMMAND ${check} --clang-format ${CLANG_FORMAT} VERBATIM)
  add_custom_target(format COMMAND ${check} --clang-format ${CLANG_FORMAT} --fix VERBATIM)
endif()
find_program(CLANG_TIDY clang-tidy)
find_program(RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(CLANG_TIDY AND RUN_CLANG_TIDY AND NOT LOCKSTEP_PCH)  # Clang cannot read what GCC has precompiled.
  add_custom_target(
    clang-tidy COMMAND ${RUN_CLANG_TIDY} -quiet -p ${PROJECT_BINARY_DIR} "^${PROJECT_SOURCE_DIR}/(kernels|scenarios|engine|oracle|harness)/.*\\.cpp$" VERBATIM)
endif()
