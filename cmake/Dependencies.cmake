# Third-party libraries, header-only so that libpolypath.so needs nothing but libc at run time.
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)

add_library(polypath_spdlog INTERFACE)
target_link_libraries(polypath_spdlog INTERFACE fmt::fmt-header-only)
target_include_directories(polypath_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(polypath_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
