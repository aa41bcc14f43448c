#!/usr/bin/env bash
# setup.sh [run|dev|mpi|test]: makes .venv, and installs missing system libraries.
#
#   run   what `make demo` needs: to build the library, and to run the Python package
#   dev   run, and what tests, lint, documentation, kernels and the wheel need (the default)
#   mpi   dev, and Open MPI and UCX
#   test  mpi, and NCCL and NVSHMEM, for what tests compare kernels with
#
# A stage does nothing when nothing that it depends on changed since the last time.
set -euo pipefail
source "$(dirname "$0")/common.sh"

case ${1:-dev} in
  run) wanted=(run) ;;
  dev) wanted=(run dev) ;;
  mpi) wanted=(run dev mpi) ;;
  test) wanted=(run dev mpi test) ;;
  *) fail "setup.sh knows run, dev, mpi and test, not '$1'" ;;
esac

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

# ---- Stages: a stamp in .venv holds a sum of what the last run of the stage depended on ---------------

# As the stage depends on it: this script, its list of packages, and the .venv that they go into.
inputs_of() {
  { cat scripts/setup.sh "$(requirements_of "$1")"; echo "$PWD"; "$python" -VV; } | sha256sum
}

requirements_of() {
  case $1 in
    run) echo requirements.txt ;;
    *) echo "requirements-$1.txt" ;;
  esac
}

is_done() {
  local stamp=.venv/.stamp-$1
  [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$(inputs_of "$1")" ]]
}

# ---- System packages --------------------------------------------------------------------------

compiler=${CXX:-c++}
has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "$compiler" -std=c++20 -E -x c++ - \
    >/dev/null 2>&1
}

# PACKAGE...: installs them.
apt_install() {
  (($#)) || return 0
  command -v apt-get >/dev/null ||
    fail "missing libraries; their Debian names: $*. Install them, then run this again"
  as_root=()
  if ((EUID != 0)); then
    as_root=(sudo)
    # A sudo that asks for a password needs somebody to ask.
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; } ||
      fail "missing packages; as root: apt-get install $*"
  fi
  say "Installing system packages: $*"
  "${as_root[@]}" apt-get -qq update || fail "apt-get update failed"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install them; by hand: apt-get install $*"
}

system_packages() {
  local packages=()
  case $1 in
    run)
      "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        packages+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
      command -v "$compiler" >/dev/null || packages+=(g++)
      has_header fmt/format.h || packages+=(libfmt-dev)
      has_header toml++/toml.h || packages+=(libtomlplusplus-dev)
      has_header nlohmann/json.hpp || packages+=(nlohmann-json3-dev)
      ;;
    dev)
      has_header gtest/gtest.h || packages+=(libgtest-dev)
      has_header gmock/gmock.h || packages+=(libgmock-dev)
      ;;
  esac
  apt_install "${packages[@]}"
}

# ---- Python environment -----------------------------------------------------------------------

# The system's cmake and ninja when they are new enough, else PyPI's.
has_cmake() {
  cmake --version 2>/dev/null |
    .venv/bin/python -c 'import re, sys; v = re.search(r"(\d+)\.(\d+)", sys.stdin.read()); sys.exit(not v or (int(v[1]), int(v[2])) < (3, 24))'
}

# The package runs from the source tree, with the library of build/release.
install_command() {
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/python" >"$site/polypath-source-tree.pth"
  cat >.venv/bin/polypath <<EOF
#!$PWD/.venv/bin/python
from polypath.cli import app

app(prog_name="polypath")
EOF
  chmod +x .venv/bin/polypath
}

quiet=()
[[ -t 1 ]] || quiet=(-q)
pip=(.venv/bin/python -m pip --disable-pip-version-check install "${quiet[@]}")

for stage in "${wanted[@]}"; do
  is_done "$stage" && continue
  say "Setting up: $stage"
  system_packages "$stage"
  if [[ $stage == run ]]; then
    "$python" -m venv --clear .venv
    has_cmake || "${pip[@]}" cmake==3.31.10
    command -v ninja >/dev/null || "${pip[@]}" ninja==1.13.0
    install_command
  fi
  "${pip[@]}" -r "$(requirements_of "$stage")"
  inputs_of "$stage" >".venv/.stamp-$stage"
done
