# The build of one part, for the head of the part's CMakeLists.txt:
#
#   cmake -S engine -B build/parts/engine -G Ninja && cmake --build build/parts/engine
#
# builds the part and, of the parts below it, what it needs. Headers of other parts are out of its reach.
# With -DPOLYPATH_TESTS=ON it builds the tests of the part as well, and of lab with -DPOLYPATH_BENCH=ON the programs
# that measure. These may use any part (most tests need sim), so all parts are configured then, and of others again
# only what is needed is built.

# The parts below each part, the lowest first: the dependency rule of ARCHITECTURE.md, which
# scripts/check_parts.py compares with these lines.
set(below_node)
set(below_device)
set(below_sim node device)
set(below_engine node device)
set(below_plugins ${below_engine} engine)
set(below_comm ${below_engine} engine)
set(below_messaging ${below_comm} comm)
set(below_uniconn ${below_comm} comm)
set(below_offload ${below_comm} comm)
set(below_intercept ${below_offload} offload uniconn)
set(below_lab ${below_comm} comm messaging uniconn)

cmake_path(GET CMAKE_SOURCE_DIR FILENAME POLYPATH_ONLY_PART)
set(below ${below_${POLYPATH_ONLY_PART}})
option(POLYPATH_TESTS "Build the tests of the part" OFF)
option(POLYPATH_BENCH "Build the programs that measure" OFF)
if(NOT POLYPATH_ONLY_PART STREQUAL lab)
  set(POLYPATH_BENCH OFF)
endif()
if(NOT POLYPATH_TESTS AND NOT POLYPATH_BENCH)
  set(POLYPATH_PARTS ${below} ${POLYPATH_ONLY_PART})
endif()
include(${CMAKE_CURRENT_LIST_DIR}/Project.cmake)

# Libraries and programs look for node files next to their folder.
file(CREATE_LINK ${POLYPATH_ROOT}/nodes ${CMAKE_BINARY_DIR}/nodes SYMBOLIC)
foreach(part IN LISTS below)
  add_subdirectory(${POLYPATH_ROOT}/${part} ${part} EXCLUDE_FROM_ALL)
endforeach()
add_subdirectory(${CMAKE_SOURCE_DIR} ${POLYPATH_ONLY_PART})
if(TARGET polypath)
  add_custom_target(c_api ALL DEPENDS polypath)  # it has the C API of the part, and is the engine's
endif()
set(above ${POLYPATH_PARTS})
list(REMOVE_ITEM above ${below} ${POLYPATH_ONLY_PART})
foreach(part IN LISTS above)
  add_subdirectory(${POLYPATH_ROOT}/${part} ${part} EXCLUDE_FROM_ALL)
endforeach()
if(POLYPATH_TESTS)
  include(${POLYPATH_ROOT}/cmake/Tests.cmake)
  add_subdirectory(${POLYPATH_ROOT}/tests tests)
  enable_testing()
endif()
if(POLYPATH_BENCH)
  add_subdirectory(${POLYPATH_ROOT}/lab/bench bench)
endif()
