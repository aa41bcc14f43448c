# polypath_test(NAME name [SOAK] COMMAND program argument...): add_test() for a program that writes down its CPU
# time where POLYPATH_TEST_CPU says so (tests/support/cpu_time.c). The program is a target or a path. SOAK: the test
# has the label "soak": it runs by `make soak`, and not by `make test`.
add_executable(cpu_time ${POLYPATH_ROOT}/tests/support/cpu_time.c)
set_target_properties(cpu_time PROPERTIES UNITY_BUILD OFF)

function(polypath_test)
  cmake_parse_arguments(PARSE_ARGV 0 TEST "SOAK" "NAME" "COMMAND")
  list(POP_FRONT TEST_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  cmake_path(GET CMAKE_BINARY_DIR FILENAME build)
  add_test(NAME ${TEST_NAME} COMMAND cpu_time ${build} ${TEST_NAME} ${program} ${TEST_COMMAND})
  if(TEST_SOAK)
    set_property(TEST ${TEST_NAME} APPEND PROPERTY LABELS soak)
  endif()
endfunction()
