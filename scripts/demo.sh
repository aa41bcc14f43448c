#!/usr/bin/env bash
# The main job: every kind of transfer of this machine's GPUs, or of the simulated node narval where
# there are none, native copy against polypath.
set -euo pipefail
source "$(dirname "$0")/common.sh"

out=build/demo
mkdir -p "$out"

gpus=$(python - <<'E2'
import polypath

try:
    with polypath.Context() as context:
        print(len(context.topology()["gpus"]))
except polypath.NoDevice:
    print(0)
E2
)
if [[ -n ${POLYPATH_NODE:-} ]]; then
  say "The simulated node $POLYPATH_NODE (POLYPATH_NODE)"
elif ((gpus == 0)); then
  export POLYPATH_NODE=narval
  gpus=4
  say "No GPU here, so this is a SIMULATED node: narval, 4 x A100, NVLink full mesh"
else
  say "This machine's $gpus GPUs"
fi

polypath topo
if ((gpus > 1)); then
  polypath plan gpu0 gpu1 64M
  polypath bench p2p --sizes 1M:512M --plot "$out/p2p.png" --json "$out/p2p.json"
  polypath bench bidir --sizes 64M,256M --json "$out/bidir.json"
  ((gpus == 2)) || polypath bench ring --sizes 64M,256M --json "$out/ring.json"
fi
for op in h2d d2h; do
  polypath bench "$op" --sizes 64M,256M --json "$out/$op.json"
done
say "Plot and figures: $out"
