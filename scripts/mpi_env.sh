#!/usr/bin/env bash
# mpi_env.sh COMMAND [ARGUMENT...]: runs the command with Open MPI and UCX of `make mpi`, such that GPU
# memory goes by UCX's cuda_ipc.
# mpi_env.sh: prints the settings instead, for eval "$(scripts/mpi_env.sh)".
#
#   scripts/mpi_env.sh mpirun -n 2 ./program
#   POLYPATH_NODE=narval scripts/mpi_env.sh mpirun -n 4 ./program      # on a simulated node
#
#   POLYPATH_NODE          a node (docs/node-files.md): programs find the simulated driver of BUILD, in
#                          functional mode, instead of the machine's
#   POLYPATH_BUILD         the build (default: build/release of this source tree)
#   POLYPATH_MPI_PREFIX    the folder of Open MPI's bin and lib (default: .venv)
#   POLYPATH_UCX_PREFIX    the folder of UCX's lib (default: the wheel's in .venv)
#
# What is set already in OMPI_MCA_*, PRTE_MCA_*, UCX_* and POLYPATH_SIM_MODE stays.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

wheel=("$root"/.venv/lib/python3*/site-packages/libucx)
mpi=${POLYPATH_MPI_PREFIX:-$root/.venv}
ucx=${POLYPATH_UCX_PREFIX:-${wheel[0]}}
build=${POLYPATH_BUILD:-$root/build/release}
for needed in "$mpi/bin/mpirun" "$ucx/lib/libucp.so.0"; do
  [[ -e $needed ]] || {
    echo "mpi_env.sh: there is no $needed: run \`make mpi\`, or set POLYPATH_MPI_PREFIX and POLYPATH_UCX_PREFIX" >&2
    exit 2
  }
done

names=()
# NAME VALUE [keep]
setting() {
  [[ -n ${3:-} && -n ${!1+set} ]] || export "$1=$2"
  names+=("$1")
}

setting OPAL_PREFIX "$mpi"
setting PATH "$mpi/bin:$PATH"
# This UCX before Open MPI's own, which knows nothing of CUDA.
libraries=$ucx/lib:$mpi/lib
# `polypath run --node` has put its own there already.
first=${LD_LIBRARY_PATH:-}
first=${first%%:*}
if [[ -n ${POLYPATH_NODE:-} && ${first##*/} != simulated-driver ]]; then
  [[ -d $build/simulated-driver ]] || {
    echo "mpi_env.sh: there is no $build/simulated-driver: build it, or set POLYPATH_BUILD" >&2
    exit 2
  }
  libraries=$build/simulated-driver:$libraries
  setting POLYPATH_SIM_MODE functional keep
  # Ranks share their cores with the simulated devices that they wait for.
  setting OMPI_MCA_mpi_yield_when_idle 1 keep
  setting OMPI_MCA_opal_common_ucx_progress_iterations 1 keep
fi
setting LD_LIBRARY_PATH "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
setting UCX_MODULE_DIR "$ucx/lib/ucx"
setting UCX_TLS cuda_ipc,cuda_copy,sm,tcp keep
setting OMPI_MCA_pml ucx keep
setting OMPI_MCA_pml_ucx_tls any keep
setting OMPI_MCA_pml_ucx_devices any keep
# Nothing here uses libfabric, whose search for networks takes a second.
setting OMPI_MCA_btl ^ofi keep
setting OMPI_ALLOW_RUN_AS_ROOT 1
setting OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
# More ranks than cores, and threads beside a rank's own, are wanted.
setting PRTE_MCA_rmaps_default_mapping_policy :oversubscribe keep
setting PRTE_MCA_hwloc_default_binding_policy none keep

if (($#)); then exec "$@"; fi
for name in "${names[@]}"; do printf 'export %s=%q\n' "$name" "${!name}"; done
