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

# polypath_few_gpu_test(NAME subject ON one_gpu|two_gpus [SOAK] [VIRTUAL] COMMAND program argument...
#                       [ENVIRONMENT variable=value...]):
# the test subject.one_gpu or subject.two_gpus, on that simulated node (tests/nodes), as many users have it: with worker
# threads, or VIRTUAL, in virtual time. Builds for sanitizers leave it out: it is the same code as on other nodes.
function(polypath_few_gpu_test)
  if(POLYPATH_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 0 FEW "SOAK;VIRTUAL" "NAME;ON" "COMMAND;ENVIRONMENT")
  set(soak)
  if(FEW_SOAK)
    set(soak SOAK)
  endif()
  set(name ${FEW_NAME}.${FEW_ON})
  polypath_test(NAME ${name} ${soak} COMMAND ${FEW_COMMAND})
  set(environment POLYPATH_NODE=${POLYPATH_ROOT}/tests/nodes/${FEW_ON}.toml POLYPATH_SIM_BLOCKS=folded)
  if(NOT FEW_VIRTUAL)
    list(APPEND environment POLYPATH_SIM_MODE=functional POLYPATH_SIM_SEED=1 POLYPATH_REGISTRY=off)
  endif()
  # A program that only skips tests nothing.
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment};${FEW_ENVIRONMENT}"
    FAIL_REGULAR_EXPRESSION "PASSED  []] 0 tests")
endfunction()

# polypath_gpu_test(NAME subject [REAL_ONLY] COMMAND program argument... [options]): for a program that is meant for real
# GPUs too. Adds subject.real, which runs on this machine's GPUs and skips where there are none, and, unless REAL_ONLY,
# subject.two_gpus by polypath_few_gpu_test() with these options.
function(polypath_gpu_test)
  cmake_parse_arguments(PARSE_ARGV 0 GPU "REAL_ONLY;SOAK;VIRTUAL" "NAME" "COMMAND;ENVIRONMENT")
  polypath_test(NAME ${GPU_NAME}.real COMMAND ${GPU_COMMAND})
  if(NOT GPU_REAL_ONLY)
    polypath_few_gpu_test(${ARGV} ON two_gpus)
  endif()
endfunction()
