# Language, warnings, sanitizers: what every target of the project shares, by the interface target
# polypath_settings.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# ccache, where it is installed: a second build of the same sources takes a tenth of the time, in another
# folder too. It takes precompiled headers and unity builds; the options that it needs for them are
# set here, so that no configuration of its own is needed. A precompiled header, of 100 MB, is read once, and not
# for each file that takes it. Depend mode would save the preprocessor's time and find nothing in another folder: unity
# files name their sources by absolute paths.
set(POLYPATH_CCACHE AUTO CACHE STRING "Compile through ccache: AUTO (where it is installed), ON or OFF")
set_property(CACHE POLYPATH_CCACHE PROPERTY STRINGS AUTO ON OFF)
if(NOT POLYPATH_CCACHE STREQUAL OFF AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE ccache)
  if(CCACHE)
    set(POLYPATH_CCACHE_ENVIRONMENT ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${POLYPATH_ROOT} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${POLYPATH_CCACHE_ENVIRONMENT} ${CCACHE})
    message(STATUS "Compiler cache: ${CCACHE}")
  elseif(POLYPATH_CCACHE STREQUAL ON)
    message(FATAL_ERROR "POLYPATH_CCACHE=ON, but ccache was not found: install it (Debian: ccache)")
  else()
    message(STATUS "Compiler cache: none: ccache is not installed")
  endif()
endif()

# The files of a target compile several at a time, with what they all include and instantiate done once:
# a third of the time that compiling takes. So the names that files keep to themselves differ within a target.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

find_package(Threads REQUIRED)

# The parts of the tree: PART/include has public headers, PART/src has what only this project includes.
set(POLYPATH_PUBLIC_INCLUDES)
set(POLYPATH_SOURCE_INCLUDES)
foreach(part node engine device comm messaging uniconn lab)
  if(NOT part IN_LIST POLYPATH_PARTS)
    continue()
  endif()
  if(IS_DIRECTORY ${POLYPATH_ROOT}/${part}/include)
    list(APPEND POLYPATH_PUBLIC_INCLUDES ${POLYPATH_ROOT}/${part}/include)
  endif()
  if(IS_DIRECTORY ${POLYPATH_ROOT}/${part}/src)
    list(APPEND POLYPATH_SOURCE_INCLUDES ${POLYPATH_ROOT}/${part}/src)
  endif()
endforeach()
# The same as options of a compiler, for commands.
set(POLYPATH_INCLUDE_FLAGS ${POLYPATH_SOURCE_INCLUDES} ${POLYPATH_ROOT}/device
  ${POLYPATH_PUBLIC_INCLUDES})
list(TRANSFORM POLYPATH_INCLUDE_FLAGS PREPEND -I)

add_library(polypath_settings INTERFACE)
target_include_directories(polypath_settings INTERFACE
  ${POLYPATH_SOURCE_INCLUDES} ${POLYPATH_PUBLIC_INCLUDES})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # What a cache keeps of a build does not depend on the folder: names of files in objects are relative, and a
  # cache sees which precompiled header a file takes.
  target_compile_options(polypath_settings INTERFACE -ffile-prefix-map=${POLYPATH_ROOT}/= -fpch-preprocess)
  # Where each core has memory enough, the compiler collects no garbage before it holds a gigabyte: a tenth of its
  # time.
  cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR mib_each "${memory_mib} / ${cores}")
  if(mib_each GREATER_EQUAL 3072)
    target_compile_options(polypath_settings INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param=ggc-min-expand=400>"
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param=ggc-min-heapsize=1048576>")
  endif()
endif()
target_compile_options(polypath_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow
  -Wnon-virtual-dtor -Wold-style-cast -Wswitch-enum)
target_link_libraries(polypath_settings INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(POLYPATH_WERROR)
  target_compile_options(polypath_settings INTERFACE -Werror)
endif()
if(POLYPATH_SANITIZE)
  target_compile_options(polypath_settings INTERFACE -fsanitize=${POLYPATH_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(POLYPATH_SANITIZE MATCHES undefined)
    # A check of its own for each access takes a quarter of the time that compiling does; what lies behind
    # wrong pointers is AddressSanitizer's, and what GPUs want aligned is checked by the simulated ones.
    target_compile_options(polypath_settings INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_link_options(polypath_settings INTERFACE -fsanitize=${POLYPATH_SANITIZE})
else()
  # One library file serves machines with an older libstdc++.
  target_link_options(polypath_settings INTERFACE -static-libstdc++ -static-libgcc)
endif()
