#!/usr/bin/env bash
# Makes .venv with all that building, testing and running from the source tree need, and installs
# missing system libraries. Does nothing when nothing changed since the last time.
set -euo pipefail
source "$(dirname "$0")/common.sh"

python=''
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$(command -v "$candidate")
    break
  fi
done
# .venv comes first in PATH; what makes it must be the interpreter behind it.
[[ -n $python ]] && python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
[[ -n $python ]] || fail "no Python 3.11 or newer: install one (Debian, Ubuntu: apt-get install python3 python3-venv), or set PYTHON"

stamp=.venv/.setup-stamp
inputs=$({ cat scripts/setup.sh requirements-dev.txt; echo "$PWD"; "$python" -VV; } | sha256sum)
if [[ -f $stamp && $(<"$stamp") == "$inputs" && -x .venv/bin/python ]]; then
  exit 0
fi

# ---- System packages --------------------------------------------------------------------------

compiler=${CXX:-c++}
has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "$compiler" -std=c++20 -E -x c++ - \
    >/dev/null 2>&1
}

packages=()
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  packages+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
if command -v "$compiler" >/dev/null; then
  has_header fmt/format.h || packages+=(libfmt-dev)
  has_header toml++/toml.h || packages+=(libtomlplusplus-dev)
  has_header nlohmann/json.hpp || packages+=(nlohmann-json3-dev)
  has_header gtest/gtest.h || packages+=(libgtest-dev)
  has_header gmock/gmock.h || packages+=(libgmock-dev)
else
  packages+=(g++ libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libgtest-dev libgmock-dev)
fi

if ((${#packages[@]})); then
  command -v apt-get >/dev/null ||
    fail "missing libraries; their Debian names: ${packages[*]}. Install them, then run this again"
  as_root=()
  if ((EUID != 0)); then
    as_root=(sudo)
    # A sudo that asks for a password needs somebody to ask.
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; } ||
      fail "missing packages; as root: apt-get install ${packages[*]}"
  fi
  say "Installing system packages: ${packages[*]}"
  "${as_root[@]}" apt-get -qq update || fail "apt-get update failed"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null ||
    fail "apt-get could not install them; by hand: apt-get install ${packages[*]}"
fi

# ---- Python environment -----------------------------------------------------------------------

say "Making .venv with $("$python" -V) (about 200 MB, a minute or two)"
"$python" -m venv --clear .venv
quiet=()
[[ -t 1 ]] || quiet=(-q)
pip=(.venv/bin/python -m pip --disable-pip-version-check install "${quiet[@]}")
"${pip[@]}" -r requirements-dev.txt

# The system's cmake and ninja when they are new enough, else PyPI's.
has_cmake() {
  cmake --version 2>/dev/null |
    .venv/bin/python -c 'import re, sys; v = re.search(r"(\d+)\.(\d+)", sys.stdin.read()); sys.exit(not v or (int(v[1]), int(v[2])) < (3, 24))'
}
has_cmake || "${pip[@]}" cmake==3.31.10
command -v ninja >/dev/null || "${pip[@]}" ninja==1.13.0

# The package runs from the source tree, with the library of build/release.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python" >"$site/polypath-source-tree.pth"
cat >.venv/bin/polypath <<EOF
#!$PWD/.venv/bin/python
from polypath.cli import app

app(prog_name="polypath")
EOF
chmod +x .venv/bin/polypath

echo "$inputs" >"$stamp"
say "Ready: .venv"
