#!/bin/sh
# Tutorial 05: kernels that exchange items by a queue, and matching on a GPU.
# docs/tutorials/05-kernels.md explains the kernel and the output. In a source tree, after `make setup`.
set -eu
build=${POLYPATH_BUILD:-build/release}

# A simulated node whose driver runs these kernels by their host builds. With GPUs: leave this out.
export POLYPATH_NODE=narval POLYPATH_SIM_MODE=functional
export POLYPATH_DRIVER_LIBRARY=$build/libpolypath_sim_of_messaging_examples.so

# Blocks share the work of the queens problem by one queue (examples/messaging/queens.cuh).
"$build/bin/messaging_queens" --size 6 --shared-rows 2 --blocks 2
