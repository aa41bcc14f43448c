#!/usr/bin/env bash
# All tests: lint; the C++ tests, plain and under sanitizers; the Python tests. A failing part does
# not stop the others, but fails the whole.
set -uo pipefail
source "$(dirname "$0")/common.sh"

failed=()
part() {
  local name=$1
  shift
  say "$name"
  "$@" || failed+=("$name")
}

cpp_tests() { scripts/build.sh "$1" && ctest --preset "$1"; }

# The thread sanitizer needs its shadow memory where address randomisation may put something else.
thread_tests() {
  local fixed=()
  setarch -R true 2>/dev/null && fixed=(setarch -R)
  scripts/build.sh tsan thread_tests && "${fixed[@]}" ctest --preset tsan
}

scripts/mpi.sh || exit 1
part "lint" scripts/lint.sh
part "tests under address and undefined-behaviour sanitizers" cpp_tests asan
part "tests of threads under the thread sanitizer" thread_tests
part "C++ tests" cpp_tests release
part "Python tests" python -m pytest tests/python
part "MPI tests" python -m pytest tests/mpi

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
