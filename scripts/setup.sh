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

# The first Python that is new enough, as a path; `too_old` names those that are not.
python='' too_old=''
find_python() {
  local candidate version
  for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
    if [[ $version == 3.* ]] && (($(cut -d. -f2 <<<"$version") >= 11)); then
      # .venv comes first in PATH; what makes it must be the interpreter behind it.
      python=$("$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))')
      return
    fi
    too_old+=" $candidate is $version,"
  done
  [[ -z $too_old ]] || fail "polypath needs Python 3.11 or newer, and${too_old%,}:" \
    "install a newer one beside it, and set PYTHON to it"
}
find_python

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
  [[ -n $python && -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$(inputs_of "$1")" ]]
}

# ---- System packages --------------------------------------------------------------------------

compiler=${CXX:-c++}
has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "$compiler" -std=c++20 -E -x c++ - \
    >/dev/null 2>&1
}

# A program that has what polypath uses of C++20, and what older compilers lack.
has_cxx20() {
  "$compiler" -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1 <<'EOF'
#include <bit>
#include <concepts>
#include <ranges>
#include <source_location>
#include <span>
static_assert(std::bit_cast<unsigned>(1.0F) != 0);
template <std::integral T> T twice(T value) { return value + value; }
EOF
}

# PACKAGE...: installs them, or ends with the command that does.
apt_install() {
  (($#)) || return 0
  command -v apt-get >/dev/null ||
    fail "missing packages; their Debian names: $*"$'\n'"Install them, then run this again."
  local as_root=() by_hand="apt-get install --no-install-recommends $*"
  if ((EUID != 0)); then
    as_root=(sudo)
    # A sudo that asks for a password needs somebody to ask.
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; } ||
      fail "missing packages: $*"$'\n'"As root: $by_hand"$'\n'"Then run this again."
  fi
  say "Installing system packages: $*"
  "${as_root[@]}" apt-get -qq update || fail "apt-get update failed"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install them; by hand: $by_hand"
}

# All that a stage lacks at once, so that nobody is told of one package after the other.
system_packages() {
  local packages=()
  case $1 in
    run)
      if [[ -z $python ]]; then
        packages+=(python3 python3-venv)
      elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        packages+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
      fi
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
  [[ $1 == run ]] || return 0
  [[ -n $python ]] || find_python
  has_cxx20 || fail "$compiler does not know C++20:" \
    "$("$compiler" --version | head -n 1); polypath needs g++ 11 or newer, or set CXX to another"
}

# ---- Python environment -----------------------------------------------------------------------

# The system's cmake and ninja when they are new enough, else PyPI's.
has_cmake() {
  cmake --version 2>/dev/null |
    .venv/bin/python -c 'import re, sys; v = re.search(r"(\d+)\.(\d+)", sys.stdin.read()); sys.exit(not v or (int(v[1]), int(v[2])) < (3, 24))'
}

# The package runs from the source tree, with the library of build/release. Paths may hold spaces, which
# a first line of a script may not: /bin/sh runs what Python takes for a string.
install_command() {
  .venv/bin/python - <<'EOF'
import os
import sysconfig

site = sysconfig.get_path("purelib")
with open(f"{site}/polypath-source-tree.pth", "w") as file:
    file.write(os.path.relpath("python", site) + "\n")
EOF
  cat >.venv/bin/polypath <<EOF
#!/bin/sh
'''exec' "$PWD/.venv/bin/python" "\$0" "\$@"
' '''
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
