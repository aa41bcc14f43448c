#!/usr/bin/env bash
# Each public header compiles alone, as C99 and as C++20; two files that include them link. Device headers as
# they are compiled for twins on the host; those over another library are compiled by the tests that have it.
set -euo pipefail
source "$(dirname "$0")/common.sh"

flags=(-Iinclude -Wall -Wextra -Wpedantic -Wshadow -Werror)
c=(${CC:-cc} -std=c99 "${flags[@]}" -Wstrict-prototypes)
cpp=(${CXX:-c++} -std=c++20 "${flags[@]}" -Wold-style-cast)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count=0
while read -r header; do
  name=${header#include/}
  # Over the MPI of who includes it.
  grep -q "^#include <mpi.h>" "$header" && ! echo '#include <mpi.h>' | "${c[@]}" -fsyntax-only -x c - 2>/dev/null && continue
  [[ $header == *.h ]] && echo "#include <$name>" | "${c[@]}" -fsyntax-only -x c -
  echo "#include <$name>" | "${cpp[@]}" -fsyntax-only -x c++ -
  echo "#include <$name>" >>"$work/all.hpp"
  count=$((count + 1))
done < <(find include/polypath -name '*.h' -o -name '*.hpp' | sort)

while read -r header; do
  case $header in
    */ptx.cuh | */tile_device.cuh) continue ;;  # parts of others, for the CUDA compiler
    */gpuccl.cuh | */gpushmem.cuh) continue ;;
  esac
  echo "#include <${header#include/}>" | "${cpp[@]}" -I. -fsyntax-only -x c++ -
  count=$((count + 1))
done < <(find include/polypath -name '*.cuh' | sort)

# Anything defined in a header and not inline would now be there twice.
for unit in one two; do
  printf '#include "all.hpp"\nint %s() { return POLYPATH_VERSION_MAJOR; }\n' "$unit" >"$work/$unit.cpp"
  "${cpp[@]}" -fPIC -c "$work/$unit.cpp" -o "$work/$unit.o"
done
"${cpp[@]}" -shared "$work/one.o" "$work/two.o" -o "$work/both.so"

version=$(sed -n 's/^project(polypath VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
header_version=$(sed -n 's/^#define POLYPATH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/polypath/polypath.h | paste -sd.)
[[ $version == "$header_version" ]] ||
  fail "CMakeLists.txt says version $version, polypath.h $header_version"

echo "public headers: $count compile alone, two units link"
