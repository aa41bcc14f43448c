#!/usr/bin/env bash
# All tests: lint; the C++ tests, plain and under sanitizers; the Python tests. A failing part does
# not stop the others, but fails the whole. At the end: how long each part took, with the last line of
# what ran it. The Python tests use one core, and those of MPI wait for each other much of their time: both
# run beside the sanitizers' builds and the C++ tests, so that no core is idle.
set -uo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh test || exit 1
logs=build/test-logs
mkdir -p "$logs"
: >"$logs/parts"

# part NAME COMMAND...: runs it, with its output to the terminal and to a log; how it ended, to files.
part() {
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  rm -f "$logs/$name".*
  echo "$name" >>"$logs/parts"
  "$@" 2>&1 | tee "$logs/$name.log" || status=$?
  echo "$status" >"$logs/$name.status"
  echo $((SECONDS - start)) >"$logs/$name.seconds"
}

with_python() {
  part "Python tests" python -m pytest --durations=25 tests/python
  part "MPI tests" python -m pytest --durations=25 tests/mpi
}

# The thread sanitizer needs its shadow memory where address randomisation may put something else.
fixed=()
setarch -R true 2>/dev/null && fixed=(setarch -R)

with_sanitizers() {
  part "build for the thread sanitizer" scripts/build.sh tsan thread_tests
  part "tests of threads under the thread sanitizer" "${fixed[@]}" ctest --preset tsan
  part "build for address and undefined-behaviour sanitizers" scripts/build.sh asan
  part "C++ tests under address and undefined-behaviour sanitizers" ctest --preset asan
  part "C++ tests" ctest --preset release
}

part "lint" scripts/lint.sh
part "build" scripts/build.sh release
with_python >"$logs/beside.log" 2>&1 &
with_sanitizers
wait
say "Beside the parts above"
cat "$logs/beside.log"

summary_of() { grep -E 'tests passed|tests failed|(passed|failed|error).* in [0-9.]+' "$1" | tail -n 1; }
failed=()
while read -r name; do
  say "$name: $(<"$logs/$name.seconds") s"
  summary_of "$logs/$name.log"
  [[ $(<"$logs/$name.status") == 0 ]] || failed+=("$name")
done <"$logs/parts"
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
