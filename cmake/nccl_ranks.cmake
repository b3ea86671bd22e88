# lockstep_nccl_ranks(FILE OUT): how many ranks the scenario has over NCCL, a GPU each; 0 where it asks for none. Read
# before there is a program that reads scenarios, so in the words of YAML alone: `parallel` as a block or in braces, its
# keys in any order, quoted or not.
function(lockstep_nccl_ranks file out)
  file(READ ${file} text)
  string(REGEX REPLACE "(^|[ \t\r\n])#[^\n]*" "\\1" text "${text}")
  string(REGEX MATCH "(^|[\n{,])[ ]*\"?parallel\"?[ ]*:[ ]*({[^}]*}|([\r\n]+[ ]+[^\n]*)+)" section "${text}")
  set(ranks 0)
  if(section MATCHES "transport\"?[ ]*:[ \n]*[\"']?nccl" AND section MATCHES "data\"?[ ]*:[ \n]*([0-9]+)")
    set(ranks ${CMAKE_MATCH_1})
  endif()
  set(${out} ${ranks} PARENT_SCOPE)
endfunction()
