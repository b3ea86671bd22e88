# ctest includes this behind all tests. Each of `tests_for_several_gpus` ("NAME;COUNT;NAME;COUNT...") takes COUNT GPUs of
# CTest's resource specification on a machine that has them. On a smaller one it asks for none and is skipped by
# tests/on_gpu.sh, since ctest fails a test that asks for more than the specification has.
execute_process(COMMAND bash "${root}/ci/visible_gpus.sh" OUTPUT_VARIABLE gpus ERROR_QUIET)
string(REGEX MATCHALL "[0-9]+" gpus "${gpus}")
list(LENGTH gpus gpus)
while(tests_for_several_gpus)
  list(POP_FRONT tests_for_several_gpus name count)
  if(NOT gpus LESS count)
    set_tests_properties("${name}" PROPERTIES RESOURCE_GROUPS "${count},gpus:1")
  endif()
endwhile()
