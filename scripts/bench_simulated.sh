#!/usr/bin/env bash
# bench_simulated.sh [--tuned]: makes bench/results/simulated anew, which the table of simulated nodes in
# docs/results.md is taken from; with --tuned also what a search finds (some minutes). Virtual time: the
# figures are the same on every machine.
set -euo pipefail
source "$(dirname "$0")/common.sh"

out=bench/results/simulated
export POLYPATH_REGISTRY=off
# Large collectives take the machine minutes, which a rank would not wait for.
export POLYPATH_COMM_TIMEOUT_MS=3600000

# run NAME [--plot] ARGUMENTS...: one benchmark.
run() {
  local name=$1
  shift
  local plot=()
  if [[ $1 == --plot ]]; then
    plot=(--plot "$out/$name.png")
    shift
  fi
  say "polypath bench $*"
  polypath bench "$@" --iterations 1 --json "$out/$name.json" "${plot[@]}"
}

for node in beluga narval mist marenostrum5 hgx-h200-x4 dgx-h200-x8; do
  run "$node.p2p" --plot p2p --node "$node" --sizes 64K:512M
done
for op in h2d d2h bidir; do
  run "hgx-h200-x4.$op" --plot "$op" --node hgx-h200-x4 --sizes 64K:512M
done
for node in beluga narval; do
  run "$node.p2p.direct-gpu" p2p --node "$node" --routes direct,gpu --sizes 512M:512M
done
run cedar.p2p.direct-host p2p --node cedar --routes direct,host --sizes 512M:512M
run narval.ring.direct-gpu ring --node narval --routes direct,gpu --sizes 256M:256M
run narval.ring-both.direct-gpu ring --both-directions --node narval --routes direct,gpu --sizes 256M:256M

# Allreduce against the ring over direct links, one path a hop; on cedar also against the three stages
# as published.
run mist.allreduce.64m allreduce --node mist --against ring --sizes 64M --calls 2
run mist.allreduce.1g allreduce --node mist --against ring --sizes 1G --calls 1
run mist.all_gather all_gather --node mist --against kernels --sizes 64M,256M --calls 2
run cedar.allreduce.64m allreduce --node cedar --against ring --sizes 64M --calls 2
run cedar.allreduce.published allreduce --node cedar --against published --sizes 64M --calls 2
for node in narval beluga marenostrum5; do
  run "$node.allreduce" allreduce --node "$node" --against none --sizes 256M --calls 1
done
run hgx-h200-x4.allreduce allreduce --node hgx-h200-x4 --against none --sizes 64K,1M,4M,16M,64M,256M --calls 1

[[ ${1:-} == --tuned ]] || exit 0
profiles=$(mktemp -d)
trap 'rm -rf "$profiles"' EXIT
for node in beluga narval; do
  say "polypath tune --node $node"
  polypath tune --node "$node" --src gpu0 --dst gpu1 --sizes 64M:512M --budget 10m \
    --profile "$profiles/$node.toml" --json "$out/$node.tuned.json"
  for executor in graph stream; do
    POLYPATH_PROFILE=$profiles/$node.toml \
      run "$node.p2p.tuned-$executor" p2p --node "$node" --sizes 8M:512M --executor "$executor"
  done
done
