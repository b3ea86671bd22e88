# The installed tree can be moved and runs its tests on another machine with no compiler and no source:
#   bin/lockstep   lib/liblockstep_cuda.so   lib/lockstep/ (the C++ runtime)   libexec/lockstep/ (test programs)
#   share/lockstep/{scenarios,adapters,tests,ci,docs}   share/lockstep/CTestTestfile.cmake
include(GNUInstallDirs)

# Notes one ctest of the installed tree. Paths are placed when ctest reads the file, wherever the tree is then.
function(lockstep_installed_ctest name command properties)
  lockstep_place("${command}" there "\${root}" "\${bin}" "\${tests}")
  set(line "add_test([=[${name}]=]")
  foreach(word IN LISTS there)
    string(APPEND line " \"${word}\"")
  endforeach()
  string(APPEND line ")\nset_tests_properties([=[${name}]=] PROPERTIES ${properties} ENVIRONMENT \"\${environment}\")\n")
  set_property(GLOBAL APPEND_STRING PROPERTY LOCKSTEP_INSTALLED_TESTS "${line}")
endfunction()

# The shared C++ runtime of this compiler, with links followed: an older system runs a tree built on a newer one as
# long as its libc is new enough.
function(lockstep_cxx_runtime result)
  set(files)
  foreach(name libstdc++.so.6 libgcc_s.so.1)
    execute_process(
      COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(IS_ABSOLUTE "${file}")
      list(APPEND files "${file}")
    endif()
  endforeach()
  set(${result} "${files}" PARENT_SCOPE)
endfunction()

function(lockstep_install)
  set(lib lib/lockstep)  # A folder of its own: our C++ runtime must not become the system's.
  set(share ${CMAKE_INSTALL_DATADIR}/lockstep)
  set(libexec ${CMAKE_INSTALL_LIBEXECDIR}/lockstep)
  file(RELATIVE_PATH from_bin /${CMAKE_INSTALL_BINDIR} /${lib})
  file(RELATIVE_PATH from_tests /${libexec} /${lib})

  # open_cuda() looks for lib/ one or two folders above the program, which holds here and in the build tree.
  set_target_properties(lockstep PROPERTIES ENABLE_EXPORTS ON INSTALL_RPATH "$ORIGIN/${from_bin}")
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_BINARY_DIR}/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/lockstep.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lockstep)
  install(FILES ${CMAKE_BINARY_DIR}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  if(TARGET lockstep_cuda)
    set_target_properties(lockstep_cuda PROPERTIES INSTALL_RPATH "$ORIGIN/lockstep")
    install(TARGETS lockstep_cuda LIBRARY DESTINATION lib)
  endif()
  lockstep_cxx_runtime(runtime)
  foreach(file ${runtime})
    get_filename_component(name ${file} NAME)
    file(REAL_PATH ${file} file)
    install(PROGRAMS ${file} DESTINATION ${lib} RENAME ${name})
  endforeach()
  # Every scenario is a test there too. The other folders of scenarios/ hold sources, which nobody needs there.
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true scenarios/*)
  foreach(folder ${folders})
    if(IS_DIRECTORY ${folder})
      file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.h)
      if(NOT sources)
        install(DIRECTORY ${folder} DESTINATION ${share}/scenarios)
      endif()
    elseif(folder MATCHES "\\.ya?ml$")
      install(FILES ${folder} DESTINATION ${share}/scenarios)
    endif()
  endforeach()
  install(DIRECTORY docs DESTINATION ${share})
  # docs/judge-your-engine.md runs the examples, and `pip install` takes the package from there.
  install(
    DIRECTORY adapters DESTINATION ${share}
    PATTERN adapters/tests EXCLUDE
    PATTERN __pycache__ EXCLUDE
    PATTERN .pytest_cache EXCLUDE
    PATTERN build EXCLUDE
    PATTERN "*.egg-info" EXCLUDE)
  # Of ci/ what runs in an installed tree: the rest builds from source.
  install(FILES ci/planted.yaml ci/products.yaml DESTINATION ${share}/ci)
  install(PROGRAMS ci/campaign.sh ci/gpu.sh ci/pressure.sh ci/resource_spec.sh ci/visible_gpus.sh DESTINATION ${share}/ci)
  install(FILES README.md DESTINATION ${share})

  get_property(programs GLOBAL PROPERTY LOCKSTEP_TEST_PROGRAMS)
  if(programs)
    set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/${from_tests}")
    install(TARGETS ${programs} RUNTIME DESTINATION ${libexec})
    get_property(objects GLOBAL PROPERTY LOCKSTEP_TEST_OBJECTS)
    set_target_properties(${objects} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS ${objects} LIBRARY DESTINATION ${lib})
    install(
      DIRECTORY tests DESTINATION ${share}
      FILES_MATCHING PATTERN "*.json" PATTERN "*.yaml" PATTERN "*.jsonl" PATTERN "*.txt" PATTERN "*.sh" PATTERN "*.cmake"
      PATTERN "CMakeLists.txt" EXCLUDE PATTERN __pycache__ EXCLUDE)
    file(RELATIVE_PATH up_bin /${share} /${CMAKE_INSTALL_BINDIR})
    file(RELATIVE_PATH up_tests /${share} /${libexec})
    get_property(tests GLOBAL PROPERTY LOCKSTEP_INSTALLED_TESTS)
    lockstep_tests_for_several_gpus(several_gpus)
    file(
      WRITE ${PROJECT_BINARY_DIR}/installed/CTestTestfile.cmake
      "# Run with: ctest --test-dir <this folder>\n"
      "# ctest enters this folder. Older ones set no CMAKE_CURRENT_LIST_DIR, newer ones have no folder for REAL_PATH.\n"
      "set(root \"\${CMAKE_CURRENT_LIST_DIR}\")\n"
      "if(NOT IS_ABSOLUTE \"\${root}\")\n"
      "  execute_process(COMMAND pwd -P OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE)\n"
      "endif()\n"
      "get_filename_component(bin \"\${root}/${up_bin}\" ABSOLUTE)\n"
      "get_filename_component(tests \"\${root}/${up_tests}\" ABSOLUTE)\n"
      "set(environment \"LOCKSTEP_ROOT=\${root};LOCKSTEP_BIN=\${bin}\")\n"
      "${tests}${several_gpus}")
    install(FILES ${PROJECT_BINARY_DIR}/installed/CTestTestfile.cmake DESTINATION ${share})
  endif()
endfunction()
