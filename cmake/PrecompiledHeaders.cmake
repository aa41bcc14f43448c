# Headers that many files include, compiled once for the libraries and once for the test programs: a
# third of the time that compiling takes. With -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON a file that lacks an #include
# does not compile.
set(POLYPATH_PRECOMPILED <fmt/format.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint>
  <cstring> <deque> <filesystem> <fstream> <functional> <list> <map> <memory> <mutex> <numeric>
  <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility>
  <variant> <vector>)

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 warns wrongly of std::string and std::vector (bug 105651 and others), and with precompiled headers
  # does not see that the place is a system header's. Builds without them keep these warnings.
  set(wrong restrict array-bounds stringop-overflow stringop-overread maybe-uninitialized)
  list(TRANSFORM wrong PREPEND -Wno-)
  target_compile_options(polypath_settings INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${wrong}>")
endif()

# polypath_precompile(MAKER [HEADERS more...]): MAKER, a target, compiles them.
function(polypath_precompile maker)
  cmake_parse_arguments(PARSE_ARGV 1 PRECOMPILE "" "" "HEADERS")
  target_precompile_headers(${maker} PRIVATE ${POLYPATH_PRECOMPILED} ${PRECOMPILE_HEADERS})
endfunction()

# polypath_precompiled_by(MAKER targets...): the targets, which share its flags, use what it made.
function(polypath_precompiled_by maker)
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM ${maker})
  endforeach()
endfunction()
