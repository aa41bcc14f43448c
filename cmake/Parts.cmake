# What is built, and which compilers build it. A part whose packages are missing is left out, and one
# status line says so: "-- PART: left out: REASON".
option(POLYPATH_PACKAGE_ONLY "Only what the Python package runs: the target package_contents" OFF)
option(POLYPATH_TESTS "Build the tests" ON)
option(POLYPATH_BENCH "Build the programs that measure" ${PROJECT_IS_TOP_LEVEL})
set(POLYPATH_VENV "${POLYPATH_ROOT}/.venv" CACHE PATH "Virtual environment whose wheels are used")

# The oldest compilers that have all of C++20 that polypath uses.
set(oldest_GNU 11)
set(oldest_Clang 15)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS "${oldest_${CMAKE_CXX_COMPILER_ID}}")
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, "
    "which lacks parts of C++20: polypath needs g++ ${oldest_GNU} or clang++ ${oldest_Clang}, or newer")
endif()

# Each compiler has warnings of its own: those of one that the project is not tested with stop no build.
set(tested OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12[.]")
  set(tested ON)
endif()
option(POLYPATH_WERROR "Warnings are errors (default: with g++ 12)" ${tested})

# polypath_left_out(PART REASON...): says that it is not built, and why.
function(polypath_left_out part)
  string(CONCAT reason ${ARGN})
  message(STATUS "${part}: left out: ${reason}")
  set_property(GLOBAL APPEND PROPERTY POLYPATH_LEFT_OUT "${part}")
endfunction()

# Normal variables, in front of the cache's: a later configuration without POLYPATH_PACKAGE_ONLY finds the
# settings as they were given. What the target package_contents compiles is the same in both.
if(POLYPATH_PACKAGE_ONLY)
  polypath_left_out("Tests, benchmarks, examples and kernels"
    "only the package is built: `make setup` builds all")
  set(POLYPATH_TESTS OFF)
  set(POLYPATH_BENCH OFF)
  set(POLYPATH_KERNELS OFF)
endif()

# Tests need both libraries of GoogleTest; Debian has them in packages of their own.
set(oldest_GTest 1.12)
if(POLYPATH_TESTS)
  find_package(GTest QUIET)
  set(missing)
  if(NOT GTest_FOUND)
    set(missing "no GoogleTest (Debian: libgtest-dev, libgmock-dev)")
  elseif(GTest_VERSION AND GTest_VERSION VERSION_LESS oldest_GTest)
    set(missing "GoogleTest ${GTest_VERSION} is too old: they need ${oldest_GTest}")
  elseif(NOT TARGET GTest::gmock)
    set(missing "GoogleTest is here without gmock (Debian: libgmock-dev)")
  endif()
  if(missing)
    polypath_left_out(Tests ${missing} ": `make setup` brings it")
    set(POLYPATH_TESTS OFF)
  endif()
endif()

# What UNICONN's calls in kernels are compared with (tests/uniconn/check_device_code.py).
foreach(name NCCL NVSHMEM)
  string(TOLOWER ${name} folder)
  file(GLOB POLYPATH_${name}_WHEEL
    ${POLYPATH_VENV}/lib/python3*/site-packages/nvidia/${folder}/include/${folder}.h)
  if(POLYPATH_TESTS AND NOT POLYPATH_${name}_WHEEL)
    polypath_left_out("Comparison with ${name}" "no ${folder}.h: `make test` brings it")
  endif()
endforeach()
