# Sourced by the other scripts: the repository root, the tools of .venv, and how to talk.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PATH="$PWD/.venv/bin:$PATH"
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$(nproc)}"

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The C and C++ sources of the project, each ended by a NUL. Symbol lists (*.def) are tables.
source_files() {
  find . \( -path ./build -o -path ./.venv \) -prune -o -regex '.*\.\([ch]\|[ch]pp\|cuh?\)' -print0
}

# The test programs that are meant for real GPUs as well: those that ctest runs as SUBJECT.real. The
# behaviour suite's run there in parts (check_on_gpus.sh).
real_tests() {
  sed -n 's/.*NAME [a-z._]*\.real COMMAND \([a-z_]*\).*/\1/p' tests/*/CMakeLists.txt | sort -u
}
