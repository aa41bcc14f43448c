# Third-party libraries. libpolypath.so needs nothing but libc at run time, so none of them is a shared
# library: the code of fmt and of toml++ is compiled here once (as headers alone they would cost each
# file that includes them four seconds), and nlohmann-json has headers only.
#
#   polypath_fmt, polypath_toml   to link with
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)

if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 11.1)
  add_library(polypath_fmt STATIC cmake/third_party/fmt.cpp)
  target_link_libraries(polypath_fmt PRIVATE polypath_settings)
  target_include_directories(polypath_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  # Other versions want other code compiled: slower, and as good.
  add_library(polypath_fmt INTERFACE)
  target_link_libraries(polypath_settings INTERFACE fmt::fmt-header-only)
endif()

add_library(polypath_toml STATIC cmake/third_party/toml.cpp)
target_link_libraries(polypath_toml PRIVATE polypath_settings)
target_include_directories(polypath_toml SYSTEM PUBLIC ${TOMLPLUSPLUS_INCLUDE_DIR})
# Of every target, so that all share precompiled headers.
target_compile_definitions(polypath_settings INTERFACE TOML_HEADER_ONLY=0)
