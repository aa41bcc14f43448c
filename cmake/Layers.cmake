# polypath_layer(NAME SOURCES files... LINK libraries...): the static library polypath_NAME, a folder of a
# part. It may link only what stands below it (scripts/check_layers.py checks the includes as well).
function(polypath_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;LINK" ${ARGN})
  add_library(polypath_${name} STATIC ${LAYER_SOURCES})
  target_link_libraries(polypath_${name} PUBLIC polypath_settings ${LAYER_LINK})
  # A library above, which a build of one part lacks, is not a name to look for on this machine.
  set_target_properties(polypath_${name} PROPERTIES LINK_LIBRARIES_ONLY_TARGETS ON)
  if(NOT name STREQUAL base)
    polypath_precompiled_by(polypath_base polypath_${name})
  endif()
endfunction()

# polypath_c_api(SOURCES files... LINK libraries...): the C API of a part, which libpolypath.so (engine) has from
# all parts of the build.
function(polypath_c_api)
  cmake_parse_arguments(API "" "" "SOURCES;LINK" ${ARGN})
  list(TRANSFORM API_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(polypath_c_api PRIVATE ${API_SOURCES})
  target_link_libraries(polypath_c_api PRIVATE ${API_LINK})
  target_link_libraries(polypath PRIVATE ${API_LINK})
endfunction()

# polypath_api_library(NAME): a shared library of which only the C API is visible.
function(polypath_api_library name)
  target_include_directories(${name} PUBLIC
    "$<BUILD_INTERFACE:${POLYPATH_PUBLIC_INCLUDES}>" $<INSTALL_INTERFACE:include>)
  set_target_properties(${name} PROPERTIES SOVERSION 0 VERSION ${POLYPATH_VERSION})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endfunction()

# The public headers of all parts in one folder, for programs that use this build without an installation.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include/polypath)
foreach(folder ${POLYPATH_PUBLIC_INCLUDES})
  file(GLOB entries ${folder}/polypath/*)
  foreach(entry ${entries})
    cmake_path(GET entry FILENAME name)
    file(CREATE_LINK ${entry} ${CMAKE_BINARY_DIR}/include/polypath/${name} SYMBOLIC)
  endforeach()
endforeach()
