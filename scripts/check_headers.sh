#!/usr/bin/env bash
# Each public header compiles alone: as C99 where C programs include it, else as C++20. All of them together
# compile as C++20, and two files that include them link. Device headers compile as the host port has
# them; those over another library are compiled by the tests that have it.
set -euo pipefail
source "$(dirname "$0")/common.sh"

includes=$(include_folders | sed s/^/-I/ | xargs)
export C="${CC:-cc} -std=c99 $includes -Wall -Wextra -Wpedantic -Wshadow -Werror -Wstrict-prototypes"
export CPP="${CXX:-c++} -std=c++20 $includes -Wall -Wextra -Wpedantic -Wshadow -Werror -Wold-style-cast"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The headers that a host compiler takes, of both kinds.
host_headers() { find $(include_folders) -path '*/polypath/*' \( -name '*.h' -o -name '*.hpp' \) | sort; }
device_headers() {
  # Parts of others, for the CUDA compiler; and those over another library.
  find $(include_folders) -name '*.cuh' | grep -vE '/(ptx|tile_device|gpuccl|gpushmem)\.cuh$' | sort
}
has_mpi=false
echo '#include <mpi.h>' | $C -fsyntax-only -x c - 2>/dev/null && has_mpi=true
is_compiled() { $has_mpi || ! grep -q '^#include <mpi.h>' "$1"; }

# compile HEADER: alone. 255 ends xargs.
compile() {
  local line="#include <${1#*include/}>"
  case $1 in
    *.h) $C -fsyntax-only -x c - <<<"$line" ;;
    *.cuh) $CPP -Idevice -fsyntax-only -x c++ - <<<"$line" ;;
    *) $CPP -fsyntax-only -x c++ - <<<"$line" ;;
  esac || exit 255
}
export -f compile

count=0
while read -r header; do
  is_compiled "$header" || continue
  [[ $header == *.cuh ]] || echo "#include <${header#*include/}>" >>"$work/all.hpp"
  echo "$header" >>"$work/headers"
  count=$((count + 1))
done < <(host_headers && device_headers)
xargs -P "$(nproc)" -n 1 bash -c 'compile "$1"' _ <"$work/headers" ||
  fail "a public header does not compile alone"

# Anything defined in a header and not inline would now be there twice.
for unit in one two; do
  printf '#include "all.hpp"\nint %s() { return POLYPATH_VERSION_MAJOR; }\n' "$unit" >"$work/$unit.cpp"
  $CPP -fPIC -c "$work/$unit.cpp" -o "$work/$unit.o"
done
$CPP -shared "$work/one.o" "$work/two.o" -o "$work/both.so"

version=$(sed -n 's/^project(polypath VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
header_version=$(sed -n 's/^#define POLYPATH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' engine/include/polypath/polypath.h | paste -sd.)
[[ $version == "$header_version" ]] ||
  fail "CMakeLists.txt says version $version, polypath.h $header_version"

echo "public headers: $count compile alone, two units link"
