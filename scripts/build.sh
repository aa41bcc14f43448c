#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: configures and builds build/PRESET (default: release).
set -euo pipefail
source "$(dirname "$0")/common.sh"

preset=${1:-release}
targets=("${@:2}")
say "Building $preset"
output=$(cmake --preset "$preset" 2>&1) || fail "cmake could not configure:"$'\n'"$output"
cmake --build --preset "$preset" ${targets:+--target "${targets[@]}"}
