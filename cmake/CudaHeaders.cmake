# cuda.h and nvml.h: from POLYPATH_CUDA_INCLUDE_DIR, from a toolkit, or from the PyPI wheels
# nvidia-cuda-runtime and nvidia-nvml-dev that `make setup` puts into .venv. Only the headers are used:
# the driver is opened at run time.
file(GLOB POLYPATH_WHEEL_INCLUDES
  ${POLYPATH_VENV}/lib/python3*/site-packages/nvidia/cu13/include
  ${POLYPATH_VENV}/lib/python3*/site-packages/nvidia/*/include)
find_path(POLYPATH_CUDA_H cuda.h
  HINTS ${POLYPATH_CUDA_INCLUDE_DIR} ${POLYPATH_WHEEL_INCLUDES} ENV CUDA_HOME
  PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(POLYPATH_NVML_H nvml.h
  HINTS ${POLYPATH_CUDA_INCLUDE_DIR} ${POLYPATH_WHEEL_INCLUDES} ENV CUDA_HOME
  PATHS /usr/local/cuda PATH_SUFFIXES include)
if(NOT POLYPATH_CUDA_H OR NOT POLYPATH_NVML_H)
  message(FATAL_ERROR "cuda.h and nvml.h were not found: run `make setup`, or give "
    "-DPOLYPATH_CUDA_INCLUDE_DIR=... (a CUDA toolkit's include folder)")
endif()
target_include_directories(polypath_settings SYSTEM INTERFACE ${POLYPATH_CUDA_H} ${POLYPATH_NVML_H})
