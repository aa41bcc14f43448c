# What every build has, that of everything and that of one part (Part.cmake): options, compilers, packages,
# functions.
#
#   POLYPATH_ROOT      the folder of the repository
#   POLYPATH_VERSION   the version that the top CMakeLists.txt states
#   POLYPATH_PARTS     the parts of the build, by default all: sources can include the headers of these
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH POLYPATH_ROOT)
file(STRINGS ${POLYPATH_ROOT}/CMakeLists.txt POLYPATH_VERSION REGEX "^project[(]")
string(REGEX REPLACE ".* VERSION ([0-9.]+).*" "\\1" POLYPATH_VERSION "${POLYPATH_VERSION}")

# In the order in which they are added: each after those that it depends on.
set(POLYPATH_ALL_PARTS node device engine comm messaging uniconn lab offload intercept plugins sim)
if(NOT DEFINED POLYPATH_PARTS)
  set(POLYPATH_PARTS ${POLYPATH_ALL_PARTS})
endif()

set(POLYPATH_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
set(POLYPATH_CUDA_INCLUDE_DIR "" CACHE PATH "Folder of cuda.h and nvml.h (default: looked for)")

set(modules ${CMAKE_CURRENT_LIST_DIR})
include(${modules}/Parts.cmake)
include(${modules}/Settings.cmake)
include(${modules}/PrecompiledHeaders.cmake)
if(node IN_LIST POLYPATH_PARTS)
  include(${modules}/CudaHeaders.cmake)
  include(${modules}/Dependencies.cmake)
endif()
if(engine IN_LIST POLYPATH_PARTS)
  include(${modules}/Kernels.cmake)
endif()
include(${modules}/Mpi.cmake)
include(${modules}/Layers.cmake)
