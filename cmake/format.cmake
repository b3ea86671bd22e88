# `format` rewrites, `format-check` only looks. One version for everybody: others break lines in other places.
find_program(CLANG_FORMAT clang-format-14)
if(CLANG_FORMAT)
  set(check ${CMAKE_COMMAND} -E env python3 ${PROJECT_SOURCE_DIR}/tests/style/format.py --root ${PROJECT_SOURCE_DIR})
  add_custom_target(format-check COMMAND ${check} --clang-format ${CLANG_FORMAT} VERBATIM)
  add_custom_target(format COMMAND ${check} --clang-format ${CLANG_FORMAT} --fix VERBATIM)
endif()
find_program(CLANG_TIDY clang-tidy)
find_program(RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(CLANG_TIDY AND RUN_CLANG_TIDY)
  # Clang cannot read what GCC has precompiled, so it has a compile database of its own. LOCKSTEP_TIDY chooses the files.
  set(LOCKSTEP_TIDY "(kernels|scenarios|engine|oracle|harness)/" CACHE STRING "Folders for the target clang-tidy, a regex")
  set(database ${PROJECT_BINARY_DIR}/clang-tidy)
  add_custom_target(
    clang-tidy
    COMMAND python3 ${PROJECT_SOURCE_DIR}/ci/tidy_database.py ${PROJECT_BINARY_DIR}/compile_commands.json ${database}
    COMMAND ${RUN_CLANG_TIDY} -quiet -p ${database} "^${PROJECT_SOURCE_DIR}/${LOCKSTEP_TIDY}.*\\.cpp$"
    VERBATIM)
endif()
