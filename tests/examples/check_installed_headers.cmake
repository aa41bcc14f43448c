# cmake -DINCLUDE=FOLDER -DHOST=FOLDER -DCXX=compiler [-DNVCC=nvcc] -P check_installed_headers.cmake: installed
# headers have no mutants, and compile: all of them for the host port (HOST has simt/), device.cuh by nvcc.
file(GLOB_RECURSE headers RELATIVE ${INCLUDE} ${INCLUDE}/polypath/*)
set(text "")
set(device 0)
foreach(header IN LISTS headers)
  file(READ ${INCLUDE}/${header} source)
  if(header MATCHES "mutant" OR source MATCHES "mutant|MUTANT")
    message(FATAL_ERROR "${header} has a mutant")
  endif()
  if(header MATCHES "\\.cuh$" AND NOT header MATCHES "/(ptx|tile_device|gpuccl|gpushmem)\\.cuh$")
    string(APPEND text "#include <${header}>\n")
    math(EXPR device "${device} + 1")
  endif()
endforeach()
if(device LESS 40)
  message(FATAL_ERROR "${INCLUDE} has only ${device} headers for kernels")
endif()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/installed_headers.cpp "${text}")
execute_process(COMMAND ${CXX} -std=c++20 -Wall -Wextra -Wshadow -Werror -I${INCLUDE} -I${HOST} -fsyntax-only
  ${CMAKE_CURRENT_BINARY_DIR}/installed_headers.cpp COMMAND_ERROR_IS_FATAL ANY)
if(NVCC)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/installed_headers.cu "#include <polypath/device.cuh>\n")
  execute_process(COMMAND ${NVCC} -ccbin ${CXX} -std=c++17 -arch=sm_90 -I${INCLUDE} -ptx -o
    ${CMAKE_CURRENT_BINARY_DIR}/installed_headers.ptx ${CMAKE_CURRENT_BINARY_DIR}/installed_headers.cu
    COMMAND_ERROR_IS_FATAL ANY)
endif()
message(STATUS "${device} headers for kernels, without mutants")
