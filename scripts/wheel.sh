#!/usr/bin/env bash
# Builds the wheel into dist/ and tries it in a virtual environment of its own.
set -euo pipefail
source "$(dirname "$0")/common.sh"

built=build/wheel-untagged
rm -rf "$built" dist
say "Building the wheel"
python -m build --wheel --no-isolation --outdir "$built" .
# The tag says which glibc the libraries need; auditwheel reads it off their symbols, and fails if they
# need any library that a wheel may not rely on.
auditwheel repair --only-plat --wheel-dir dist "$built"/*.whl
wheel=$(echo dist/*.whl)

say "Trying $wheel"
trial=build/wheel-trial
python -m venv --clear "$trial"
"$trial/bin/python" -m pip --disable-pip-version-check install --quiet "$wheel"
python -m zipfile --list "$wheel"
# From another folder, so that nothing of the source tree is used.
cd "$trial"
bin/polypath plan gpu0 gpu1 64M --node narval
bin/polypath doctor --node narval
bin/polypath demo --node narval --sizes 1M
say "Wheel: $wheel"
