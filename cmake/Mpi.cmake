# Open MPI and UCX, from the wheels that `make mpi` puts into .venv, or from other folders. Where they are
# not found, what needs them is left out.
#
#   polypath_mpi   to link with Open MPI
#   polypath_ucx   to link with UCX's own API as well
#
# Programs find both at run time by LD_LIBRARY_PATH, which scripts/mpi_env.sh sets.
set(POLYPATH_MPI_PREFIX "" CACHE PATH "Folder of Open MPI's include and lib (default: .venv)")
set(POLYPATH_UCX_PREFIX "" CACHE PATH "Folder of UCX's include and lib (default: the wheel's in .venv)")

file(GLOB POLYPATH_UCX_WHEEL ${POLYPATH_VENV}/lib/python3*/site-packages/libucx)
find_path(POLYPATH_MPI_INCLUDE mpi.h NO_DEFAULT_PATH
  HINTS ${POLYPATH_MPI_PREFIX} ${POLYPATH_VENV} PATH_SUFFIXES include)
find_file(POLYPATH_MPI_LIBRARY libmpi.so.40 NO_DEFAULT_PATH
  HINTS ${POLYPATH_MPI_PREFIX} ${POLYPATH_VENV} PATH_SUFFIXES lib)
find_path(POLYPATH_UCX_INCLUDE ucp/api/ucp.h NO_DEFAULT_PATH
  HINTS ${POLYPATH_UCX_PREFIX} ${POLYPATH_UCX_WHEEL} PATH_SUFFIXES include)
foreach(name ucp ucs)
  find_file(POLYPATH_${name}_LIBRARY lib${name}.so.0 NO_DEFAULT_PATH
    HINTS ${POLYPATH_UCX_PREFIX} ${POLYPATH_UCX_WHEEL} PATH_SUFFIXES lib)
endforeach()

if(POLYPATH_MPI_INCLUDE AND POLYPATH_MPI_LIBRARY AND POLYPATH_UCX_INCLUDE AND POLYPATH_ucp_LIBRARY
    AND POLYPATH_ucs_LIBRARY)
  # Each library needs others that only LD_LIBRARY_PATH leads to, and its folder holds many more.
  add_library(polypath_mpi INTERFACE)
  target_include_directories(polypath_mpi SYSTEM INTERFACE ${POLYPATH_MPI_INCLUDE})
  target_link_libraries(polypath_mpi INTERFACE ${POLYPATH_MPI_LIBRARY})
  target_compile_definitions(polypath_mpi INTERFACE OMPI_SKIP_MPICXX)
  target_link_options(polypath_mpi INTERFACE -Wl,--allow-shlib-undefined)
  add_library(polypath_ucx INTERFACE)
  target_include_directories(polypath_ucx SYSTEM INTERFACE ${POLYPATH_UCX_INCLUDE})
  target_link_libraries(polypath_ucx INTERFACE ${POLYPATH_ucp_LIBRARY} ${POLYPATH_ucs_LIBRARY})
  target_link_options(polypath_ucx INTERFACE -Wl,--allow-shlib-undefined)
elseif(POLYPATH_TESTS OR POLYPATH_BENCH)
  set(missing)
  if(NOT POLYPATH_MPI_INCLUDE OR NOT POLYPATH_MPI_LIBRARY)
    list(APPEND missing "Open MPI")
  endif()
  if(NOT POLYPATH_UCX_INCLUDE OR NOT POLYPATH_ucp_LIBRARY OR NOT POLYPATH_ucs_LIBRARY)
    list(APPEND missing "UCX")
  endif()
  list(JOIN missing " and no " missing)
  polypath_left_out("Programs of MPI" "no ${missing}: `make mpi` brings it")
endif()
