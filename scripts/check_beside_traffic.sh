#!/usr/bin/env bash
# check_beside_traffic.sh RESULTS [BUILD]: polypath beside other copies, on a machine with three GPUs or more, with
# a build made elsewhere (as check_on_gpus.sh). Each step measures native and polypath in alternating pairs,
# on the idle node and beside the traffic, in one run, and compares every byte. RESULTS gets a table and a
# JSON document for each step, and a summary.
#
#   SIZES=16M,64M,256M,512M   message sizes
#   STEPS='p2p.*'             only the steps whose whole name matches this regular expression
#   STEP_SECONDS=100          time limit of one step
#   WHEELS=folder             wheels of rich, as check_on_gpus.sh
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
{ date -u +%FT%TZ; uname -a; nvidia-smi; nvidia-smi topo -m; } >"$results/machine.txt" 2>&1

failed=0
step() {
  local name=$1 start=$SECONDS status=0
  shift
  [[ $name =~ ^(${STEPS:-.*})$ ]] || return 0
  timeout --kill-after=10 "${STEP_SECONDS:-100}" python3 -m polypath "$@" >"$results/$name.log" 2>&1 </dev/null || status=$?
  echo "== $name: status $status, $((SECONDS - start)) s: polypath $*"
  grep -vE '^ *$' "$results/$name.log" | tail -n 14
  ((status == 0)) || failed=$((failed + 1))
}
beside() {
  local name=$1
  shift
  step "$name" bench "$@" --sizes "${SIZES:-16M,64M,256M,512M}" --json "$results/$name.json"
}

step measure topo --measure --json "$results/topo.json"
for traffic in d2h:gpu0 h2d:gpu1 h2d:gpu0 d2h:gpu1 d2h:gpu2; do
  beside "p2p.${traffic/:/-}" p2p --beside "$traffic"
done
beside p2p.d2h-gpu0.same-process p2p --beside d2h:gpu0 --beside-same-process
beside p2p.d2h-gpu0.polypath p2p --beside d2h:gpu0 --beside-polypath
beside p2p.d2h-gpu0.period p2p --beside d2h:gpu0 --beside-period 20ms
beside bidir.d2h-gpu1 bidir --beside d2h:gpu1
beside h2d.h2d-gpu2 h2d --beside h2d:gpu2
beside h2d.h2d-gpu0 h2d --beside h2d:gpu0
beside h2d.h2d-gpu2.polypath h2d --beside h2d:gpu2 --beside-polypath
beside d2h.d2h-gpu2 d2h --beside d2h:gpu2
few() {
  local name=$1
  shift
  step "$name" bench "$@" --beside-rounds 2 --json "$results/$name.json"
}
few pages.h2d-gpu2 pages --sizes 16K --beside h2d:gpu2
few pageable.h2d-gpu2 pageable --sizes 1M,4M,16M,256M --iterations 8 --beside h2d:gpu2
few load.h2d-gpu2 load --sizes 64M,1G --iterations 5 --beside h2d:gpu2
few spread.h2d-gpu1 spread --sizes 64M,1G --iterations 6 --beside h2d:gpu1
few spread-gpu0.d2h-gpu1 spread --src gpu0 --sizes 64M,1G --iterations 6 --beside d2h:gpu1
step idle.p2p bench p2p --sizes 1M:1G --json "$results/idle.p2p.json"
step idle.h2d bench h2d --sizes 1M:1G --json "$results/idle.h2d.json"
echo "$failed steps failed"
((failed == 0))
