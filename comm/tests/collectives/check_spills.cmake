# Bytes of registers that ptxas keeps in local memory in the kernels by channels of up to four ranks, and by
# lines, which have none: a limit.
# cmake -DNVCC=... -DCXX=... -DINCLUDES='-I...|-I...' -DOUT=... -P check_spills.cmake
# Of the bytes, none are in the loops of sums (nvdisasm); what a change adds there shows here at once.
set(limit 700) # stores and loads; 324 with nvcc 13.0, 3540 with avg in the loop of sums and called functions
string(REPLACE "|" ";" include_flags "${INCLUDES}")
execute_process(COMMAND ${NVCC} -ccbin ${CXX} -std=c++17 -O3 --expt-relaxed-constexpr
  -gencode=arch=compute_90,code=sm_90 -Xptxas -v ${include_flags}
  -cubin -o ${OUT} ${CMAKE_CURRENT_LIST_DIR}/channels_of_four.cu
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "nvcc failed:\n${said}")
endif()
string(REGEX MATCHALL "[0-9]+ bytes spill (stores|loads)" spills "${said}")
list(LENGTH spills count)
if(count EQUAL 0)
  message(FATAL_ERROR "ptxas says nothing of spills:\n${said}")
endif()
set(bytes 0)
foreach(spill IN LISTS spills)
  string(REGEX MATCH "^[0-9]+" one "${spill}")
  math(EXPR bytes "${bytes} + ${one}")
endforeach()
message(STATUS "${bytes} bytes of spills")
if(bytes GREATER limit)
  message(FATAL_ERROR "${bytes} bytes of spills, and ${limit} are allowed:\n${said}")
endif()
