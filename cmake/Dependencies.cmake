# Third-party libraries. libpolypath.so needs nothing but libc at run time, so none of them is a shared
# library: the code of fmt and of toml++ is compiled here once (as headers alone they would cost each
# file that includes them four seconds), and nlohmann-json has headers only.
#
#   polypath_fmt, polypath_toml   to link with

# polypath_need(NAME VERSION OLDEST DEBIAN): stops with what to install where VERSION is empty or too old.
function(polypath_need name version oldest debian)
  if(NOT version)
    message(FATAL_ERROR "${name} was not found: polypath needs ${oldest} or newer (Debian: ${debian})")
  elseif(version VERSION_LESS oldest)
    message(FATAL_ERROR "${name} ${version} is too old: polypath needs ${oldest} or newer (Debian: ${debian})")
  endif()
endfunction()

find_package(fmt QUIET)
polypath_need(fmt "${fmt_VERSION}" 9 libfmt-dev)
find_package(nlohmann_json QUIET)
polypath_need(nlohmann-json "${nlohmann_json_VERSION}" 3.11 nlohmann-json3-dev)

find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
set(TOMLPLUSPLUS_VERSION)
# One header has all, or another of these has the version (up to 3.3, and since 3.4).
foreach(header toml.h toml.hpp impl/version.h impl/version.hpp)
  if(EXISTS ${TOMLPLUSPLUS_INCLUDE_DIR}/toml++/${header})
    file(STRINGS ${TOMLPLUSPLUS_INCLUDE_DIR}/toml++/${header} line
      REGEX "define[ \t]+TOML_LIB_(MAJOR|MINOR)[ \t]")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${line}")
    if(numbers)
      list(JOIN numbers "." TOMLPLUSPLUS_VERSION)
    endif()
  endif()
endforeach()
polypath_need(toml++ "${TOMLPLUSPLUS_VERSION}" 3 libtomlplusplus-dev)

if(fmt_VERSION VERSION_LESS 11.1)
  add_library(polypath_fmt STATIC EXCLUDE_FROM_ALL ${POLYPATH_ROOT}/cmake/third_party/fmt.cpp)
  target_link_libraries(polypath_fmt PRIVATE polypath_settings)
  target_include_directories(polypath_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  # Other versions want other code compiled: slower, and as good.
  add_library(polypath_fmt INTERFACE)
  target_link_libraries(polypath_settings INTERFACE fmt::fmt-header-only)
endif()

add_library(polypath_toml STATIC EXCLUDE_FROM_ALL ${POLYPATH_ROOT}/cmake/third_party/toml.cpp)
target_link_libraries(polypath_toml PRIVATE polypath_settings)
target_include_directories(polypath_toml SYSTEM PUBLIC ${TOMLPLUSPLUS_INCLUDE_DIR})
# Of every target, so that all share precompiled headers.
target_compile_definitions(polypath_settings INTERFACE TOML_HEADER_ONLY=0)
