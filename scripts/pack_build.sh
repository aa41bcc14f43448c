#!/usr/bin/env bash
# pack_build.sh [FOLDER]: the release build's libraries and test programs, stripped, in a folder that
# can travel to a machine with GPUs (default: build/packed). check_on_gpus.sh runs it there. With what
# `make mpi` installed, where the build has programs for it.
set -euo pipefail
source "$(dirname "$0")/common.sh"

folder=${1:-build/packed}
rm -rf "$folder"
mkdir -p "$folder/bin"
cp build/release/libpolypath{,_lab,_nccl,_preload,_references,_sim}.so "$folder"
# The tests name their libraries by their SONAME.
for library in libpolypath libpolypath_lab; do
  ln -s $library.so "$folder/$(readelf -d "$folder/$library.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
done
for name in $(real_tests) test_behaviour test_behaviour_threads driver_facts issue_cost preparation \
  messaging_bench nccl_call_cost uniconn_{bench,cg,jacobi2d,tune}; do
  cp "build/release/bin/$name" "$folder/bin"
done
cp -r nodes "$folder"
# What is built for GPUs alone, where nvcc and the libraries' headers are here. The kernel assembler takes
# minutes and gigabytes for some of them.
for backend in polypath gpuccl gpushmem; do
  if timeout 300 ninja -C build/release "uniconn_device_$backend"; then
    cp "build/release/bin/uniconn_device_$backend" "$folder/bin"
  else
    say "uniconn_device_$backend is left out"
  fi
done
if [[ -x build/release/bin/mpi_traffic ]]; then
  cp build/release/bin/{mpi_*,ucx_put_bandwidth,jacobi,comm_ranks,node_ranks,uniconn_ranks,uniconn_*_mpi} \
    "$folder/bin"
  scripts/pack_mpi.sh "$folder/mpi-stack"
fi
strip "$folder"/*.so "$folder"/bin/*
du -sh "$folder"
