#!/bin/sh
# nvcc_fatbin.sh -c|-E ARGUMENT...: nvcc ($POLYPATH_NVCC) as a compiler cache wants to call a compiler.
# -c makes a fat binary, and -E preprocesses for each architecture of the -gencode arguments in turn, as
# the fat binary is compiled.
set -eu

mode=
for argument in "$@"; do
  case $argument in -c | -E) mode=$argument ;; esac
done

if [ "$mode" = -E ]; then
  for architecture in $(printf '%s\n' "$@" | sed -n 's/^-gencode=\(arch=compute_[0-9a-z]*\),.*/\1/p' | sort -u); do
    for argument in "$@"; do
      shift
      case $argument in
        -gencode=* | arch=*) ;;
        *) set -- "$@" "$argument" ;;
      esac
    done
    "$POLYPATH_NVCC" "$@" -gencode="$architecture",code="${architecture#arch=}"
  done
  exit
fi

for argument in "$@"; do
  shift
  [ "$argument" = -c ] && argument=-fatbin
  set -- "$@" "$argument"
done
exec "$POLYPATH_NVCC" "$@"
