#!/usr/bin/env bash
# test.sh [--since REV | --soak]: lint, the C++ tests with and without sanitizers, the Python tests.
#
#   (nothing)     everything that belongs to a change; what CI runs
#   --since REV   what the files that differ from REV reach (scripts/select_tests.py)
#   --soak        what is long by nature (label or marker `soak`): long random runs, nodes of eight GPUs, mutants'
#                 programs under sanitizers
#
# A failing part does not stop the others, but fails the whole. At the end: how long each part took, with the
# last line of what ran it, and the CPU time of the tests against their budgets (tests/budgets).
#
# After the release build three lanes run side by side, so that no core waits: one builds for sanitizers and runs
# the tests of those builds, the others run the C++ and the Python tests of the release build. The lane that has run
# the C++ tests takes a part of those under the address sanitizer as well. Many tests wait
# for their other processes much of their time, and some take a core while they do: more at once would take longer.
set -uo pipefail
source "$(dirname "$0")/common.sh"

since='' soak=''
case ${1:-} in
  '') ;;
  --since) since=${2:?a revision} ;;
  --soak) soak=1 ;;
  *) fail "test.sh knows --since REV and --soak, not '$1'" ;;
esac

scripts/setup.sh test || exit 1
logs=$PWD/build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
export POLYPATH_TEST_CPU=$logs

# part NAME COMMAND...: runs it, with its output to the terminal and to a log; how it ended, to files.
part() {
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  echo "$name" >>"$logs/parts"
  "$@" 2>&1 | tee "$logs/$name.log" || status=$?
  echo "$status" >"$logs/$name.status"
  echo $((SECONDS - start)) >"$logs/$name.seconds"
}

configure() { cmake --preset "$1" >/dev/null || fail "cmake could not configure $1"; }

# What is run: by default everything, but tests that both builds would run alike run under sanitizers alone.
ctest='.*' alike='^$' targets=(all) python=tests/python mpi=tests/mpi
choose() {
  local line
  while read -r line; do
    case $line in
      exclude=*) alike=${line#*=} ;;
      ctest=\*) ;;
      ctest=*) ctest=${line#*=} ;;
      targets=\*) ;;
      targets=*) read -ra targets <<<"${line#*=}" ;;
      python=\*) ;;
      python=*) python=${line#*=} ;;
      mpi=\*) ;;
      mpi=*) mpi=${line#*=} ;;
    esac
  done
}

# python_part NAME FILES...
python_part() {
  local name=$1
  shift
  (($#)) && part "$name" python -m pytest "${pytest_options[@]}" --durations=15 "$@"
}

# ctest_part NAME PRESET OPTION...: on half of the cores.
half=$((($(nproc) + 1) / 2))
ctest_part() {
  [[ -n $ctest ]] || return 0
  part "$1" ctest --preset "$2" -j "$half" -R "$ctest" --no-tests=ignore "${@:3}"
}

# The thread sanitizer needs its shadow memory where address randomisation may put something else.
fixed=()
setarch -R true 2>/dev/null && fixed=(setarch -R)

python_lane() {
  # shellcheck disable=SC2086
  python_part "Python tests" $python
  # shellcheck disable=SC2086
  python_part "MPI tests" $mpi
}

# Those of the targets that the folder of a preset has.
targets_of() {
  local target
  for target in "${targets[@]}"; do
    ! grep -q "^build $target: phony" "build/$1/build.ninja" || echo "$target"
  done
}

has_tests() { ! ctest --preset "$1" -N -R "$ctest" | grep -q '^Total Tests: 0$'; }

# The tests under the address sanitizer, in parts: whichever lane is free takes the next one.
shares=6
sanitized_tests() {
  local share
  for ((share = 1; share <= shares; ++share)); do
    mkdir "$logs/share $share" 2>/dev/null || continue
    ctest_part "C++ tests under address and undefined-behaviour sanitizers, $share of $shares" asan -LE soak \
      -I "$share,,$shares"
  done
}

sanitizer_lane() {
  [[ -n $ctest ]] || return 0
  local threads=
  part "build for address and undefined-behaviour sanitizers" scripts/build.sh asan "${sanitized[@]}"
  touch "$logs/asan is built"
  configure tsan
  if has_tests tsan; then
    part "build for the thread sanitizer" scripts/build.sh tsan thread_tests
    part "tests of threads under the thread sanitizer" "${fixed[@]}" ctest --preset tsan -j "$half" -R "$ctest" -LE soak \
      >"$logs/thread lane" 2>&1 &
    threads=$!
  fi
  sanitized_tests
  [[ -z $threads ]] || { wait "$threads"; cat "$logs/thread lane"; }
}

optimised_lane() {
  [[ -n $ctest ]] || return 0
  ctest_part "C++ tests" release -E "$alike" -LE soak
  until [[ -e "$logs/asan is built" ]]; do sleep 1; done
  sanitized_tests
}

pytest_options=(-n 2 --dist worksteal)
[[ -n $soak ]] || pytest_options+=(-m "not soak")
part "lint" scripts/lint.sh
[[ -n $soak ]] || part "configuration" scripts/check_configure.sh
if [[ -n $soak ]]; then
  part "build" scripts/build.sh release
  part "build for address and undefined-behaviour sanitizers" scripts/build.sh asan
  part "C++ tests that are long" ctest --preset release -L soak
  part "C++ tests that are long under sanitizers" ctest --preset asan -L soak
  # Modules of one name are in both folders.
  python_part "Python tests that are long" -m soak tests/python
  python_part "MPI tests that are long" -m soak tests/mpi
else
  configure release
  configure asan
  choose < <(scripts/left_out_tests.py build/asan)
  sanitized=("${targets[@]}")
  choose < <(scripts/left_out_tests.py build/release build/asan)
  optimised=("${targets[@]}") targets=(all)
  if [[ -n $since ]]; then
    choose < <(scripts/select_tests.py "$since")
    if [[ ${targets[*]} != all ]]; then
      targets+=(cpu_time)
      optimised=("${targets[@]}")
      mapfile -t sanitized < <(targets_of asan)
    fi
  fi
  part "build" scripts/build.sh release "${optimised[@]}"
  optimised_lane >"$logs/optimised lane" 2>&1 &
  python_lane >"$logs/python lane" 2>&1 &
  sanitizer_lane
  wait
  say "The C++ and the Python tests, which ran side by side with the parts above"
  cat "$logs/optimised lane" "$logs/python lane"
fi

[[ -n $soak ]] || part "CPU time of tests" scripts/check_budgets.py "$logs"

summary_of() { grep -E 'tests passed|tests failed|(passed|failed|error).* in [0-9.]+' "$1" | tail -n 1; }
failed=()
while read -r name; do
  say "$name: $(<"$logs/$name.seconds") s"
  summary_of "$logs/$name.log"
  [[ $(<"$logs/$name.status") == 0 ]] || failed+=("$name")
done <"$logs/parts"
say "all: $SECONDS s"
for name in "${failed[@]}"; do
  echo "failed: $name"
  grep -E '^(FAILED|ERROR) |^\s+[0-9]+ - .* \(|: error:' "$logs/$name.log" | grep -v ' (Skipped)$' | head -n 30
done >&2
((${#failed[@]} == 0))
