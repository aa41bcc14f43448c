#!/usr/bin/env bash
# bench.sh [FOLDER]: every benchmark of this machine's GPUs, or of each simulated node where there are
# none; tables to the terminal, JSON and plots into FOLDER (default: build/bench).
set -euo pipefail
source "$(dirname "$0")/common.sh"

out=${1:-build/bench}
mkdir -p "$out"
sizes=${SIZES:-1M:512M}

bench() {
  local name=$1
  shift
  say "polypath bench $*"
  polypath bench "$@" --sizes "$sizes" --json "$out/$name.json" --plot "$out/$name.png"
}

if [[ -z ${POLYPATH_NODE:-} ]] && polypath info -d >/dev/null 2>&1; then
  nodes=("")
else
  nodes=(${POLYPATH_NODE:-beluga narval mist cedar marenostrum5 hgx-h200-x4})
fi
for node in "${nodes[@]}"; do
  for op in p2p bidir ring h2d d2h; do
    bench "${node:-this}-$op" "$op" ${node:+--node "$node"}
  done
done
