#!/usr/bin/env bash
# All tests: lint; the C++ tests, plain and under sanitizers; the Python tests. A failing part does
# not stop the others, but fails the whole. At the end: how long each part took, with the last line of
# what ran it. The Python tests use one core, and run while the sanitizers' builds are made; those of MPI wait
# for each other much of their time, and run beside the sanitizers' tests.
set -uo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh test || exit 1
logs=build/test-logs
mkdir -p "$logs"

names=() failed=()
# part NAME COMMAND...: runs it, with its output to the terminal and to a log.
part() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  "$@" 2>&1 | tee "$logs/$name.log" || failed+=("$name")
  echo $((SECONDS - start)) >"$logs/$name.seconds"
  names+=("$name")
}

# aside NAME COMMAND...: the same beside the parts that follow; aside_ends waits, and shows its output.
aside() {
  local start=$SECONDS
  aside_name=$1
  shift
  {
    "$@" >"$logs/$aside_name.log" 2>&1
    status=$?
    echo $((SECONDS - start)) >"$logs/$aside_name.seconds"
    exit $status
  } &
}
aside_ends() {
  wait "$!" || failed+=("$aside_name")
  say "$aside_name (beside the parts above)"
  cat "$logs/$aside_name.log"
  names+=("$aside_name")
}

# The thread sanitizer needs its shadow memory where address randomisation may put something else.
fixed=()
setarch -R true 2>/dev/null && fixed=(setarch -R)

part "lint" scripts/lint.sh
part "build" scripts/build.sh release
aside "Python tests" python -m pytest tests/python
part "build for address and undefined-behaviour sanitizers" scripts/build.sh asan
part "build for the thread sanitizer" scripts/build.sh tsan thread_tests
aside_ends
aside "MPI tests" python -m pytest tests/mpi
part "tests of threads under the thread sanitizer" "${fixed[@]}" ctest --preset tsan
part "C++ tests under address and undefined-behaviour sanitizers" ctest --preset asan
aside_ends
part "C++ tests" ctest --preset release

summary_of() { grep -E 'tests passed|tests failed|(passed|failed|error).* in [0-9.]+' "$1" | tail -n 1; }
for name in "${names[@]}"; do
  say "$name: $(<"$logs/$name.seconds") s"
  summary_of "$logs/$name.log"
done
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
