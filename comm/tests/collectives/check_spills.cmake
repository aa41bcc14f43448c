# Bytes of registers that ptxas keeps in local memory, stores and loads, in kernels as the library has them, each
# for up to four ranks and for eight: no more than are reached. For sm_90.
# cmake -DNVCC=... -DCXX=... -DINCLUDES='-I...|-I...' -DKERNELS=folder -DOUT=... -P check_spills.cmake
# What a change adds there shows here at once; where it is, nvdisasm says.
string(REPLACE "|" ";" include_flags "${INCLUDES}")
set(failures "")

# What ptxas says of what a file's kernels need; `type`: for which they are compiled, or "".
function(compile file type result)
  execute_process(COMMAND ${NVCC} -ccbin ${CXX} -std=c++17 -O3 --expt-relaxed-constexpr
    -gencode=arch=compute_90,code=sm_90 -Xptxas -v -DPOLYPATH_KERNELS_OF_${type} ${include_flags}
    -cubin -o ${OUT} ${KERNELS}/${file}
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    message(FATAL_ERROR "nvcc failed:\n${said}")
  endif()
  set(${result} "${said}" PARENT_SCOPE)
endfunction()

# The bytes of one kernel and of the functions that it calls.
function(allow said kernel limit)
  set(begin "Compiling entry function 'polypath_${kernel}' for 'sm_90'")
  string(FIND "${said}" "${begin}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "ptxas says nothing of polypath_${kernel}:\n${said}")
  endif()
  string(SUBSTRING "${said}" ${at} -1 said)
  string(REPLACE "${begin}" "" said "${said}")
  string(FIND "${said}" "Compiling entry function" end)
  string(SUBSTRING "${said}" 0 ${end} said)
  string(REGEX MATCHALL "[0-9]+ bytes spill (stores|loads)" spills "${said}")
  if(NOT spills)
    message(FATAL_ERROR "ptxas says nothing of the spills of polypath_${kernel}:\n${said}")
  endif()
  set(bytes 0)
  foreach(spill IN LISTS spills)
    string(REGEX MATCH "^[0-9]+" one "${spill}")
    math(EXPR bytes "${bytes} + ${one}")
  endforeach()
  message(STATUS "polypath_${kernel}: ${bytes} bytes of spills")
  if(bytes GREATER limit)
    set(failures "${failures}polypath_${kernel}: ${bytes} bytes of spills, ${limit} are allowed\n" PARENT_SCOPE)
  endif()
endfunction()

# The limits are what nvcc 13.0 reaches.
foreach(type float32 float16)
  compile(collectives.cu ${type} said)
  foreach(group channels cells lines sums)
    allow("${said}" ${group}_${type} 0)
  endforeach()
endforeach()
compile(norm_kernels.cu "" said)
foreach(kernel IN ITEMS all_reduce_norm_float16=264 all_reduce_norm_bfloat16=92 rms_norm_float16=0
    rms_norm_bfloat16=0)
  string(REPLACE "=" ";" kernel "${kernel}")
  allow("${said}" ${kernel})
endforeach()
if(failures)
  message(FATAL_ERROR "${failures}")
endif()
