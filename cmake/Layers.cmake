# polypath_layer(NAME SOURCES files... LINK libraries...): the static library polypath_NAME, a folder of a
# part. It may link only what stands below it (scripts/check_layers.py checks the includes as well).
function(polypath_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;LINK" ${ARGN})
  add_library(polypath_${name} STATIC ${LAYER_SOURCES})
  target_link_libraries(polypath_${name} PUBLIC polypath_settings ${LAYER_LINK})
  if(NOT name STREQUAL base)
    polypath_precompiled_by(polypath_base polypath_${name})
  endif()
endfunction()

# The C API of all parts, which add their sources: polypath_c_api_sources(files...).
add_library(polypath_c_api OBJECT)
target_link_libraries(polypath_c_api PRIVATE polypath_settings)
function(polypath_c_api_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(polypath_c_api PRIVATE ${ARGN})
endfunction()
