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

# The folders of public headers, one a part.
include_folders() {
  local folder
  for folder in */include; do [[ -d $folder/polypath ]] && echo "$folder"; done
}

# The C and C++ sources of the project, each ended by a NUL. Symbol lists (*.def) are tables.
source_files() {
  find . \( -path ./build -o -path ./.venv \) -prune -o -regex '.*\.\([ch]\|[ch]pp\|cuh?\)' -print0
}

# The test programs that are meant for real GPUs as well: those that ctest runs as SUBJECT.real. The
# behaviour suite's run there in parts (check_on_gpus.sh).
real_tests() {
  sed -n 's/^polypath_gpu_test(NAME .*COMMAND \([a-z_]*\).*/\1/p' {,*/}tests/{,*/}CMakeLists.txt | sort -u
}

# For scripts that run on a machine with GPUs: the build in $build on its GPUs, a profile in $results, and the
# Python package with the wheels of the folder WHEELS, where it is set.
use_build() {
  unset POLYPATH_NODE
  # By default a GPU has eight hardware queues for all streams, and a stream that is held back holds the
  # others of its queue, with polypath or without.
  export CUDA_DEVICE_MAX_CONNECTIONS=32
  export POLYPATH_LIBRARY=$build/libpolypath.so
  export POLYPATH_PROFILE=$results/profile.toml
  export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PYTHONPATH=$PWD/python PYTHONUNBUFFERED=1 COLUMNS=160 NO_COLOR=1
  if [[ -n ${WHEELS:-} ]]; then
    python3 -m pip install --quiet --no-index --find-links "$WHEELS" --target "$results/site" rich ||
      exit 2
    PYTHONPATH+=:$results/site
  fi
}
