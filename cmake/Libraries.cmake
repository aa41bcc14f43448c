# libpolypath.so is the C API over the engine and what stands on it, libpolypath_lab.so over the
# laboratory too; nothing else is visible.
target_link_libraries(polypath_c_api PRIVATE polypath_collectives polypath_messaging
  polypath_backend_profile)
polypath_precompiled_by(polypath_base polypath_c_api)
add_library(polypath SHARED $<TARGET_OBJECTS:polypath_c_api>)
target_link_libraries(polypath PRIVATE polypath_collectives polypath_messaging
  polypath_backend_profile)
add_library(polypath_lab SHARED $<TARGET_OBJECTS:polypath_c_api> lab/src/lab/lab_api.cpp
  lab/src/lab/collective_bench_api.cpp)
target_link_libraries(polypath_lab PRIVATE polypath_laboratory polypath_messaging
  polypath_backend_profile)
if(POLYPATH_SANITIZE)
  # No test of a sanitizer's build runs it: built when asked for by name.
  set_target_properties(polypath_lab PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
# The public headers of all parts in one folder, for programs that use this build without an installation.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include/polypath)
foreach(folder ${POLYPATH_PUBLIC_INCLUDES})
  file(GLOB entries ${folder}/polypath/*)
  foreach(entry ${entries})
    cmake_path(GET entry FILENAME name)
    file(CREATE_LINK ${entry} ${CMAKE_BINARY_DIR}/include/polypath/${name} SYMBOLIC)
  endforeach()
endforeach()

foreach(library polypath polypath_lab)
  target_include_directories(${library} PUBLIC
    "$<BUILD_INTERFACE:${POLYPATH_PUBLIC_INCLUDES}>" $<INSTALL_INTERFACE:include>)
  set_target_properties(${library} PROPERTIES SOVERSION 0 VERSION ${PROJECT_VERSION})
  target_link_options(${library} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endforeach()
