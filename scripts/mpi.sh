#!/usr/bin/env bash
# Puts Open MPI and UCX into .venv. Does nothing when they are there.
set -euo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh
stamp=.venv/.mpi-stamp
inputs=$(sha256sum <requirements-mpi.txt)
[[ -f $stamp && $(<"$stamp") == "$inputs" ]] && exit 0
say "Installing Open MPI and UCX into .venv (50 MB to download)"
quiet=()
[[ -t 1 ]] || quiet=(-q)
python -m pip --disable-pip-version-check install "${quiet[@]}" -r requirements-mpi.txt
echo "$inputs" >"$stamp"
