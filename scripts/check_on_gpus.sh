#!/usr/bin/env bash
# check_on_gpus.sh RESULTS [BUILD]: the tests and benchmarks on a machine with GPUs, with a build made
# elsewhere (BUILD, default build/release; pack_build.sh makes a small copy of it). Nothing is built or
# downloaded here. Each step runs under a time limit; a failing one does not stop the others. RESULTS
# gets a log per step, the gtest reports, the benchmarks as JSON and PNG, the machine's description
# and a summary.
#
#   SIZES=1M:1G       message sizes of the benchmarks
#   MESSAGES=1M,64M   message sizes of the comparisons of MPI programs
#   POWERS=23:30      sizes of the Jacobi solver's grids, 8 x 2^K elements
#   WEIGHTS=4G        how much PyTorch loads
#   TRAINING=none     arguments of examples/train_ddp.py
#   SOAK=7            seconds that each queue's line runs without a pause
#   TUNE=2m           how long backends of UNICONN are compared
#   STEP_SECONDS=300  time limit of one step
#   STEPS='bench.*'   only the steps whose whole name matches this regular expression
#   WHEELS=folder     wheels of rich and what it needs, where python3 lacks them; made by
#                     `pip download --only-binary=:all: --dest folder rich`
set -uo pipefail

[[ $# -ge 1 && $# -le 2 ]] || {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
mkdir -p "$1"
results=$(cd "$1" && pwd)
source "$(dirname "$0")/common.sh"
build=$(cd "${2:-build/release}" && pwd) || exit 2

use_build
# Those that PyTorch's wheels bring.
for library in nccl nvshmem; do
  folder=$(python3 -c "import nvidia.$library; print(nvidia.$library.__path__[0])" 2>/dev/null) &&
    [[ -d $folder/lib ]] && LD_LIBRARY_PATH+=:$folder/lib
done
plots=yes
python3 -c 'import matplotlib' 2>/dev/null || plots=''

names=() outcomes=() seconds=()
failed=0
step() {
  local name=$1 start=$SECONDS status=0
  shift
  [[ $name =~ ^(${STEPS:-.*})$ ]] || return 0
  printf '%-28s ' "$name"
  timeout --kill-after=10 "${STEP_SECONDS:-300}" "$@" >"$results/$name.log" 2>&1 </dev/null || status=$?
  case $status in
    0) outcomes+=(ok) ;;
    124 | 137) outcomes+=("timed out") ;;
    *) outcomes+=("failed ($status)") ;;
  esac
  ((status == 0)) || failed=$((failed + 1))
  names+=("$name")
  seconds+=($((SECONDS - start)))
  echo "${outcomes[-1]}, ${seconds[-1]} s"
  ((status == 0)) || tail -n 5 "$results/$name.log" | sed 's/^/    /'
}

polypath() { step "$1" python3 -m polypath "${@:2}"; }

bench() {
  local name=$1
  shift
  polypath "bench.$name" bench "$@" --sizes "${SIZES:-1M:1G}" --json "$results/bench.$name.json" \
    ${plots:+--plot "$results/bench.$name.png"}
}

{
  date -u +%FT%TZ
  uname -a
  nproc
  nvidia-smi
  nvidia-smi topo -m
  git log -1 --format='commit %H' 2>/dev/null
} >"$results/machine.txt" 2>&1

polypath info.devices info -d
polypath info.settings info -c
polypath topo.measured topo --measure --json "$results/topo.json" ${plots:+--plot "$results/topo.png"}
# gtest NAME PROGRAM FILTER
gtest() {
  step "$1" stdbuf -oL "$build/bin/$2" --gtest_color=no --gtest_brief=1 --gtest_filter="$3" \
    "--gtest_output=json:$results/$1.json"
}
for name in $(real_tests); do gtest "$name" "$name" '*'; done
# The behaviour suite in parts of at most two minutes. What holds streams back, or looks at which contexts
# there are, has a process a test: which streams share a hardware queue depends on those before.
tests_of() {
  "$build/bin/$1" --gtest_list_tests --gtest_filter="$2" |
    awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }'
}
for executor in Stream Graph; do
  for suite in ContentTest OrderTest GroupTest; do
    STEP_SECONDS=120 gtest "behaviour.$executor.$suite" test_behaviour "$executor/$suite.*"
  done
done
for program in test_behaviour test_behaviour_threads; do
  for name in $(tests_of $program '*HeldStreamTest*:*PreparationTest*:*ThreadsTest*'); do
    STEP_SECONDS=120 gtest "behaviour.${name//\//.}" $program "$name"
  done
done
# Messages by MPI, without the shim and under it, where the build brings Open MPI (pack_build.sh).
if [[ -d $build/mpi-stack ]]; then
  ranks=$(nvidia-smi -L | wc -l)
  ((ranks > 1)) || ranks=2
  export POLYPATH_MPI_PREFIX=$build/mpi-stack/mpi POLYPATH_UCX_PREFIX=$build/mpi-stack/ucx
  export POLYPATH_BUILD=$build
  for pattern in pairs window both ring all; do
    traffic=(scripts/mpi_env.sh mpirun -n "$ranks" "$build/bin/mpi_traffic" "$pattern"
      --sizes 1,1000,64K,1M,3000001,64M --window 4)
    step "mpi.stock.$pattern" "${traffic[@]}"
    step "mpi.shim.$pattern" env LD_PRELOAD="$build/libpolypath_preload.so" \
      POLYPATH_STATS="$results/mpi.shim.$pattern.json" "${traffic[@]}"
  done
  python3 -c 'import pytest' 2>/dev/null &&
    step mpi.tests env POLYPATH_TEST_NODE=real python3 -m pytest -p no:cacheprovider tests/mpi
fi
step driver.facts "$build/bin/driver_facts" --json "$results/driver.facts.json"
step issue.cost "$build/bin/issue_cost"
step preparation "$build/bin/preparation"
step preparation.h2d "$build/bin/preparation" host0 gpu0
step example.python python3 examples/copy_async.py
polypath plan.p2p plan gpu0 gpu1 64M
bench p2p p2p
bench p2p-direct p2p --routes direct
bench bidir bidir
bench ring ring
bench h2d h2d
bench d2h d2h
# Many blocks, memory that is not pinned, files, and the same bytes to all GPUs.
polypath bench.pages bench pages --json "$results/bench.pages.json"
for threads in 16 32; do
  export POLYPATH_COPY_THREADS=$threads
  polypath "bench.pageable-$threads" bench pageable --sizes "${SIZES:-1M:1G}" --iterations 8 \
    --json "$results/bench.pageable-$threads.json"
  polypath "bench.load-$threads" bench load --iterations 5 --json "$results/bench.load-$threads.json"
done
unset POLYPATH_COPY_THREADS
for src in host0 host0:pageable gpu0; do
  polypath "bench.spread-${src/:/-}" bench spread --src "$src" --sizes "${SIZES:-1M:1G}" \
    --json "$results/bench.spread-${src/:/-}.json"
done
# As graphs; windows; then all again by what a search finds best.
for op in p2p h2d; do
  polypath "bench.$op-executors" bench "$op" --sizes "${EXECUTOR_SIZES:-16M:1G}" --compare-executors \
    --json "$results/bench.$op-executors.json"
done
polypath bench.graph-phases bench graph-phases --json "$results/graph-phases.json" \
  ${plots:+--plot "$results/graph-phases.png"}
polypath tune tune --json "$results/tuned.json" ${plots:+--plot "$results/tuned.png"}
for op in p2p bidir h2d d2h; do bench "$op-tuned" "$op"; done
# Unmodified programs, with and without the shim in alternation, by what was tuned, as users start them.
unset CUDA_DEVICE_MAX_CONNECTIONS
polypath doctor doctor
if [[ -d $build/mpi-stack ]]; then
  messages() {
    local name=$1
    shift
    polypath "messages.$name" bench mpi "$@" --json "$results/messages.$name.json" \
      ${plots:+--plot "$results/messages.$name.png"}
  }
  messages bw --test bw --windows 1,16 --sizes "${MESSAGES:-64K,1M,4M,16M,64M,256M}"
  messages bibw --test bibw --windows 1,16 --sizes "${MESSAGES:-1M,16M,64M,256M}"
  messages put --test put --windows 1,16 --sizes "${MESSAGES:-1M,16M,64M,256M}"
  messages latency --test latency --sizes 8,1K,64K,256K,1M,4M --pairs 5
  messages mesh-91 --test bw --windows 16 --sizes 64M,256M --emulate-mesh 91
  # Two routes a message, as in the papers; two GPUs have no others.
  routes=()
  ((ranks == 2)) || routes=(--routes direct,gpu --setting max_routes=2)
  for mesh in off 91; do
    polypath "jacobi.mesh-$mesh" bench jacobi --ranks "$ranks" --emulate-mesh "$mesh" \
      --powers "${POWERS:-23:30}" "${routes[@]}" --json "$results/jacobi.mesh-$mesh.json"
  done
fi
python3 -c 'import torch' 2>/dev/null && step torch.memory python3 scripts/check_torch_memory.py
python3 -c 'import torch' 2>/dev/null &&
  step weights python3 examples/load_weights.py --compare --size "${WEIGHTS:-4G}" --json "$results/weights.json" &&
  step weights.1G python3 examples/load_weights.py --compare --size 1G --single --json "$results/weights.1G.json"
polypath bench.p2p-window bench p2p --window 1,4,16 --sizes 4M:64M \
  --json "$results/bench.p2p-window.json"
polypath bench.bidir-window bench bidir --window 16 --sizes 64M \
  --json "$results/bench.bidir-window.json"
polypath bench.messaging bench messaging --what all --json "$results/bench.messaging.json"
step messaging.soak "$build/bin/messaging_bench" --what queue --soak "${SOAK:-7}"
gpus=$(nvidia-smi -L | wc -l)
if ((gpus > 1)); then
  step messaging.remote-soak "$build/bin/messaging_bench" --what remote --gpus 0,1 --soak "${SOAK:-7}"
  polypath bench.allreduce bench allreduce --json "$results/bench.allreduce.json" \
    ${plots:+--plot "$results/bench.allreduce.png"}
  for mode in host partial device; do
    polypath "uniconn.jacobi-$mode" bench uniconn --test jacobi --mode $mode --pairs 5 \
      --json "$results/uniconn.jacobi-$mode.json"
    polypath "uniconn.cg-$mode" bench uniconn --test cg --mode $mode --pairs 3 --iterations 200 \
      --json "$results/uniconn.cg-$mode.json"
  done
  polypath uniconn.latency bench uniconn --test latency --json "$results/uniconn.latency.json"
  polypath uniconn.bandwidth bench uniconn --test bandwidth --window 1,16 --sizes 1M,64M,512M --pairs 3 \
    --json "$results/uniconn.bandwidth.json"
  polypath uniconn.tune tune backend --budget "${TUNE:-2m}" --json "$results/uniconn.tune.json"
  polypath uniconn.plan plan backend post 64M
fi
nccl_of_torch=$(python3 -c 'import nvidia.nccl; print(nvidia.nccl.__path__[0])' 2>/dev/null)/lib/libnccl.so.2
[[ -f $nccl_of_torch ]] && step nccl.call-cost "$build/bin/nccl_call_cost" "$build/libpolypath_nccl.so" "$nccl_of_torch"
# Kernels of a program that communicate, over each backend that the build has a program for.
if python3 -c 'import torch' 2>/dev/null; then
  for backend in polypath gpuccl gpushmem; do
    [[ -x $build/bin/uniconn_device_$backend ]] &&
      step "uniconn.device-$backend" python3 -m torch.distributed.run --no-python --nproc-per-node "$gpus" \
        "$build/bin/uniconn_device_$backend"
  done
fi
# Sums of a program that only knows NCCL: by NCCL, whose bits may depend on the size, and in rank order.
if python3 -c 'import torch' 2>/dev/null && ((gpus > 1)); then
  ranks=(python3 -m torch.distributed.run --nproc-per-node "$gpus")
  reproducible=(run --no-measure --reproducible --stats text -- "${ranks[@]}")
  step nccl.rows bash -c '"$@"; (($? < 2))' - "${ranks[@]}" lab/bench/nccl/bitwise_equality.py
  polypath nccl.rows-reproducible run --reproducible --strict --stats text -- "${ranks[@]}" \
    lab/bench/nccl/bitwise_equality.py
  for set in as-it-comes tree batch-invariant; do
    polypath "nccl.calls-$set" "${reproducible[@]}" lab/bench/nccl/calls.py --nccl $set \
      --json "$results/nccl.calls-$set.json"
  done
  step nccl.windows "${ranks[@]}" lab/bench/nccl/windows.py --json "$results/nccl.windows.json"
  polypath nccl.decode "${reproducible[@]}" lab/bench/nccl/decode.py --json "$results/nccl.decode.json"
  polypath nccl.programs "${reproducible[@]}" scripts/check_nccl_programs.py
  step torch.collectives env CUDA_DEVICE_MAX_CONNECTIONS=32 python3 scripts/check_torch_collectives.py \
    --spawn "$gpus" --json "$results/torch.collectives.json" --training "${TRAINING:-none}"
fi
python3 -c 'import torch' 2>/dev/null && step bench.rotating python3 lab/bench/rotating_buffers.py
# As on Beluga and on Narval (docs/emulated-mesh.md).
for gbps in 46 91; do
  bench "mesh-$gbps-gpu" p2p --routes direct,gpu --emulate-mesh "$gbps"
  bench "mesh-$gbps-all" p2p --emulate-mesh "$gbps"
  bench "mesh-$gbps-ring" ring --routes direct,gpu --emulate-mesh "$gbps"
done

{
  printf '\n%-28s %-14s %8s\n' step outcome seconds
  for i in "${!names[@]}"; do
    printf '%-28s %-14s %8s\n' "${names[i]}" "${outcomes[i]}" "${seconds[i]}"
  done
  printf '%d steps, %d failed\n' "${#names[@]}" "$failed"
} | tee "$results/summary.txt"
((failed == 0))
