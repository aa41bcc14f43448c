#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: builds build/PRESET (default: release), and configures it where need be.
#
# For the target package_contents alone, which `make demo` builds, a new folder is configured without tests,
# benchmarks, examples and kernels (POLYPATH_PACKAGE_ONLY): what these need may be missing. Any other
# build configures the folder for everything, and keeps what was compiled. A folder that is configured for
# everything stays so, because CMake deletes the programs that a configuration has no longer.
set -euo pipefail
source "$(dirname "$0")/common.sh"

preset=${1:-release}
targets=("${@:2}")
folder=build/$preset
cache=$folder/CMakeCache.txt

cached() { [[ -f $cache ]] && grep -q "^$1=$2\$" "$cache"; }

package_only=OFF
if [[ ${targets[*]} == package_contents ]]; then
  [[ -f $folder/build.ninja ]] && ! cached POLYPATH_PACKAGE_ONLY:BOOL ON || package_only=ON
fi

# What the configuration depends on and ninja does not look at: these files, and what setup.sh installed.
inputs() {
  { cat scripts/build.sh CMakePresets.json .venv/.stamp-* 2>/dev/null || true; echo "$PWD $package_only"
    command -v cmake; } | sha256sum
}

# A part that was left out may have become available, by other ways than setup.sh.
is_configured() {
  [[ -f $folder/build.ninja && -f $folder/configured && $(<"$folder/configured") == "$(inputs)" ]] &&
    [[ $package_only == ON || ! -s $folder/excluded.txt ]]
}

configure() {
  local fresh=() output
  # Of a checkout that was moved or copied.
  [[ ! -f $cache ]] || cached CMAKE_HOME_DIRECTORY:INTERNAL "$PWD" || fresh=(--fresh)
  rm -f "$folder/configured"
  output=$(cmake "${fresh[@]}" --preset "$preset" -DPOLYPATH_PACKAGE_ONLY="$package_only" 2>&1) ||
    fail "cmake could not configure:"$'\n'"$output"
  sed -n 's/^-- \(.*: left out: .*\)/\1/p' <<<"$output"
  inputs >"$folder/configured"
}

say "Building $preset"
is_configured || configure
cmake --build "$folder" ${targets:+--target "${targets[@]}"}
