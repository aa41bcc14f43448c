# The CUDA compiler, for the kernels of parts. It is optional: without it the library is whole but for the
# emulated mesh. Looked for on PATH and in CUDA_HOME, then in the PyPI wheels (nvidia-cuda-nvcc and what it
# needs) that `make setup` puts into .venv. Kernels become data in the library, loaded by the driver:
# nothing is linked to a CUDA runtime.
set(POLYPATH_KERNELS AUTO CACHE STRING "Build the kernels: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE POLYPATH_KERNELS PROPERTY STRINGS AUTO ON OFF)

# Sets POLYPATH_KERNEL_FLAGS, the GPUs that POLYPATH_NVCC is to compile for: those of the list that it
# knows, and the last of them as PTX, for newer ones. Empty, with `why`, when it does not work.
function(polypath_try_nvcc why)
  execute_process(COMMAND ${POLYPATH_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_VARIABLE error
    RESULT_VARIABLE status)
  set(flags "")
  foreach(arch 70 80 90)
    if("${known}" MATCHES "sm_${arch}")
      list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
      set(last ${arch})
    endif()
  endforeach()
  if(flags)
    list(APPEND flags -gencode=arch=compute_${last},code=compute_${last})
    set(trial ${CMAKE_BINARY_DIR}/CMakeFiles/kernel_trial)
    file(WRITE ${trial}.cu "extern \"C\" __global__ void trial(int* to) { *to = 1; }\n")
    execute_process(
      COMMAND ${POLYPATH_NVCC} -ccbin ${CMAKE_CXX_COMPILER} ${flags} -fatbin -o ${trial}.fatbin ${trial}.cu
      OUTPUT_VARIABLE error ERROR_VARIABLE error RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      set(flags "")
    endif()
  endif()
  set(${why} "${error}" PARENT_SCOPE)
  set(POLYPATH_KERNEL_FLAGS "${flags}" CACHE INTERNAL "What nvcc compiles for")
  set(POLYPATH_TRIED_NVCC "${POLYPATH_NVCC}" CACHE INTERNAL "The nvcc that POLYPATH_KERNEL_FLAGS is for")
endfunction()

if(POLYPATH_KERNELS STREQUAL OFF)
  set(POLYPATH_KERNEL_FLAGS "" CACHE INTERNAL "")
  set(POLYPATH_TRIED_NVCC "" CACHE INTERNAL "")
  if(NOT POLYPATH_PACKAGE_ONLY)
    message(STATUS "Kernels: none, as asked (POLYPATH_KERNELS=OFF)")
  endif()
else()
  file(GLOB wheel_bins ${POLYPATH_VENV}/lib/python3*/site-packages/nvidia/cu13/bin)
  if(POLYPATH_NVCC AND NOT EXISTS ${POLYPATH_NVCC})
    unset(POLYPATH_NVCC CACHE)  # it went with .venv
  endif()
  find_program(POLYPATH_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda ${wheel_bins}
    PATH_SUFFIXES bin)
  if(NOT POLYPATH_NVCC)
    set(why "nvcc was not found: `make setup` brings it")
    set(POLYPATH_KERNEL_FLAGS "" CACHE INTERNAL "")
  elseif(NOT POLYPATH_KERNEL_FLAGS OR NOT "${POLYPATH_NVCC}" STREQUAL "${POLYPATH_TRIED_NVCC}")
    polypath_try_nvcc(error)
    set(why "${POLYPATH_NVCC} does not work: ${error}")
  endif()
  if(POLYPATH_KERNEL_FLAGS)
    message(STATUS "Kernels: by ${POLYPATH_NVCC}")
  elseif(POLYPATH_KERNELS STREQUAL ON)
    message(FATAL_ERROR "POLYPATH_KERNELS=ON, but ${why}")
  else()
    polypath_left_out(Kernels "${why} (no emulated mesh, no communicators on GPUs)")
  endif()
endif()

# Kernels take the CUDA compiler most of the time that a build takes: they are kept by ccache, too.
set(POLYPATH_FATBIN ${POLYPATH_NVCC} -fatbin)
if(POLYPATH_KERNEL_FLAGS AND POLYPATH_CCACHE_ENVIRONMENT)
  execute_process(COMMAND ${POLYPATH_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  file(READ ${POLYPATH_ROOT}/cmake/nvcc_fatbin.sh wrapper)
  string(SHA256 nvcc_version "${nvcc_version}${wrapper}")
  set(POLYPATH_FATBIN ${POLYPATH_CCACHE_ENVIRONMENT} POLYPATH_NVCC=${POLYPATH_NVCC} CCACHE_COMPILERTYPE=nvcc
    CCACHE_COMPILERCHECK=string:${nvcc_version} ${CCACHE} ${POLYPATH_ROOT}/cmake/nvcc_fatbin.sh -c)
endif()

# polypath_embed_kernel(NAME FOLDER SOURCES variable HEADER header NAMESPACE namespace [FLAGS flags...]
#   [FILE file.cu] [TEXT] [HOST]): sets `variable` to the C++ source of the compiled kernels FOLDER/NAME.cu, or
# FOLDER/FILE, which defines the function NAME_image() that `header` declares in `namespace`. In a build without
# kernels the image is empty; with TEXT, a text that no real driver takes, but the simulated one, which runs the
# host builds of kernels. HOST: also compiles the file for simulated drivers (device/simt). For the CMakeLists.txt
# whose target has them.
function(polypath_embed_kernel name folder)
  cmake_parse_arguments(PARSE_ARGV 2 KERNEL "TEXT;HOST" "SOURCES;HEADER;NAMESPACE;FILE" "FLAGS")
  if(NOT KERNEL_FILE)
    set(KERNEL_FILE ${name}.cu)
  endif()
  if(KERNEL_HOST)
    polypath_add_host_kernels(${folder}/${KERNEL_FILE})
  endif()
  # Sanitizers look at host builds: what is for a GPU would be compiled for nothing.
  set(compiled "${POLYPATH_KERNEL_FLAGS}")
  if(KERNEL_TEXT AND POLYPATH_SANITIZE)
    set(compiled "")
  endif()
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_image.cpp)
  if(compiled)
    add_custom_command(OUTPUT ${image}
      COMMAND ${POLYPATH_FATBIN} -ccbin ${CMAKE_CXX_COMPILER} -std=c++17 -O3 -Werror all-warnings
        ${KERNEL_FLAGS} ${POLYPATH_KERNEL_FLAGS} ${POLYPATH_INCLUDE_FLAGS}
        -MD -MF ${image}.d -MT ${image} -o ${image} ${folder}/${KERNEL_FILE}
      DEPENDS ${folder}/${KERNEL_FILE} DEPFILE ${image}.d COMMENT "Compiling ${name}" VERBATIM)
  else()
    set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.txt)
    set(text "")
    if(KERNEL_TEXT)
      set(text "polypath: ${name} was built without a CUDA compiler\n")
    endif()
    # Written only where it differs: else each configuration would have it embedded and compiled anew.
    file(CONFIGURE OUTPUT ${image} CONTENT "${text}")
  endif()
  set(embed ${POLYPATH_ROOT}/cmake/EmbedImage.cmake)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DIMAGE=${image} -DSOURCE=${source}
      -DHEADER=${KERNEL_HEADER} -DNAMESPACE=${KERNEL_NAMESPACE} -P ${embed}
    DEPENDS ${image} ${embed} COMMENT "Embedding ${name}" VERBATIM)
  set(${KERNEL_SOURCES} ${source} PARENT_SCOPE)
endfunction()
