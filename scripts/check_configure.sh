#!/usr/bin/env bash
# Configures the project with each optional package hidden in turn, and with versions that are too old, and each part
# alone, into folders of their own; compiles nothing. Each case states whether it succeeds, and what it says. What
# is optional is made here, as empty files and packages: the result does not depend on what is installed.
set -uo pipefail
source "$(dirname "$0")/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CUDA_HOME CXXFLAGS CFLAGS

# ---- What is hidden: a virtual environment, and packages of CMake --------------------------------

# empty FILE...: makes them, with their folders.
empty() {
  local file
  for file in "$@"; do mkdir -p "${file%/*}" && : >"$file"; done
}

# package NAME VERSION [TARGET...]: what find_package(NAME) finds in $work/NAME-VERSION.
package() {
  local folder=$work/$1-$2 target
  empty "$folder/$1Config.cmake" "$folder/$1ConfigVersion.cmake"
  for target in "${@:3}"; do
    echo "add_library($target INTERFACE IMPORTED)" >>"$folder/$1Config.cmake"
  done
  echo "set(PACKAGE_VERSION $2)
set(PACKAGE_VERSION_COMPATIBLE TRUE)" >"$folder/$1ConfigVersion.cmake"
}

venv=$work/venv
site=lib/python3.11/site-packages
empty "$venv"/{include/mpi.h,lib/libmpi.so.40} \
  "$venv/$site"/libucx/{include/ucp/api/ucp.h,lib/libucp.so.0,lib/libucs.so.0} \
  "$venv/$site"/nvidia/{cu13/include/cuda.h,cu13/include/nvml.h,nccl/include/nccl.h} \
  "$venv/$site"/nvidia/{nvshmem/include/nvshmem.h,cu13/bin/nvcc}
# A compiler that knows one GPU, and compiles all.
echo '#!/bin/sh
[ "$1" != --list-gpu-code ] || echo sm_90' >"$venv/$site/nvidia/cu13/bin/nvcc"
chmod +x "$venv/$site/nvidia/cu13/bin/nvcc"

# without NAME FILE...: a copy of the virtual environment that lacks them; its path is $work/NAME.
without() {
  cp -r "$venv" "$work/$1"
  (cd "$work/$1" && rm -r "${@:2}")
}
without no-mpi include lib/libmpi.so.40
without no-ucx "$site/libucx"
without no-nccl "$site/nvidia/nccl"
without no-nvshmem "$site/nvidia/nvshmem"
without no-nvcc "$site/nvidia/cu13/bin"
without no-cuda "$site/nvidia/cu13/include"
without broken-nvcc "$site/nvidia/cu13/bin/nvcc"
without nothing include lib/libmpi.so.40 "$site"/{libucx,nvidia/nccl,nvidia/nvshmem,nvidia/cu13/bin}
printf '#!/bin/sh\nexit 1\n' >"$work/broken-nvcc/$site/nvidia/cu13/bin/nvcc"
chmod +x "$work/broken-nvcc/$site/nvidia/cu13/bin/nvcc"

package GTest 1.12.1 GTest::gtest GTest::gtest_main GTest::gmock GTest::gmock_main
package GTest 1.13.0 GTest::gtest GTest::gtest_main # without gmock
package GTest 1.10.0 GTest::gtest GTest::gtest_main GTest::gmock GTest::gmock_main
package fmt 8.1.1 fmt::fmt-header-only
package nlohmann_json 3.9.1 nlohmann_json::nlohmann_json
empty "$work/toml-2/toml++/toml.h"
echo '#define TOML_LIB_MAJOR 2' >"$work/toml-2/toml++/toml.h"
empty "$work"/toml-3.4/toml++/{toml.h,impl/version.hpp}
printf '#define TOML_LIB_MAJOR 3\n#define TOML_LIB_MINOR 4\n' >"$work/toml-3.4/toml++/impl/version.hpp"

# ---- The cases ---------------------------------------------------------------------------------

# configure NAME ARGUMENT...: configures build folder $work/build-NAME, with output to $work/NAME.log. What
# CMake found out about the compilers is taken from the first folder, and nothing else. NAME alone-PART is the part
# alone, and alone-PART-tests its tests with it.
configure() {
  local folder=$work/build-$1 source=. status=0
  if [[ $1 == alone-* ]]; then
    source=${1#alone-} source=${source%-tests}
    empty "$folder/.cmake/api/v1/query/codemodel-v2" # for check_parts.py
  fi
  if [[ $1 != all ]]; then
    mkdir -p "$folder"
    cp -r "$work/compilers/CMakeFiles" "$folder"
    sed -n "s|build-all\$|build-$1|;/^CMAKE_HOME_DIRECTORY/d;/^CMAKE_/p" "$work/build-all/CMakeCache.txt" >"$folder/CMakeCache.txt"
    [[ $1 != old-gcc ]] ||
      sed -i 's/\(CMAKE_CXX_COMPILER_VERSION\) .*/\1 "9.4.0")/;s/\(CMAKE_CXX_COMPILER_ID\) .*/\1 "GNU")/' \
        "$folder"/CMakeFiles/*/CMakeCXXCompiler.cmake
  fi
  cmake -G Ninja -S "$source" -B "$folder" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPOLYPATH_VENV="$venv" \
    -DCMAKE_HAVE_LIBC_PTHREAD=1 -DGTest_DIR="$work/GTest-1.12.1" \
    -DCMAKE_IGNORE_PREFIX_PATH=/usr/local/cuda "${@:2}" >"$work/$1.log" 2>&1 || status=$?
  echo "$status" >"$work/$1.status"
}

passed=0 failed=0
names=() outcomes=() said=()

# case_of NAME OUTCOME SAID ARGUMENT...: OUTCOME is "whole", "stops", or the parts that are left out, one after
# the other with commas; SAID is a regular expression that a line of the output matches.
case_of() {
  names+=("$1") outcomes+=("$2") said+=("$3")
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
  configure "$1" "${@:4}" &
}

# judge NAME OUTCOME SAID: whether the case went as it should.
judge() {
  local parts status text
  status=$(<"$work/$1.status")
  # CMake breaks the lines of errors.
  text=$(tr -s ' \n' ' ' <"$work/$1.log")
  parts=$(sed -n 's/^-- \(.*\): left out: .*/\1/p' "$work/$1.log" | paste -sd,)
  case $2 in
    stops) ((status)) ;;
    whole) ((status == 0)) && [[ -z $parts ]] ;;
    *) ((status == 0)) && [[ $parts == "$2" ]] ;;
  esac && grep -qE -- "$3" <<<"$text"
}

configure all
mkdir -p "$work/compilers/CMakeFiles"
cp -r "$work"/build-all/CMakeFiles/[0-9]*.* "$work/compilers/CMakeFiles"
names=(all) outcomes=(whole) said=('Kernels: by')

case_of no-gtest Tests 'no GoogleTest .Debian: libgtest-dev, libgmock-dev' \
  -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
case_of no-gmock Tests 'without gmock .Debian: libgmock-dev' -DGTest_DIR="$work/GTest-1.13.0"
case_of old-gtest Tests 'GoogleTest 1.10.0 is too old: they need 1.12' \
  -DGTest_DIR="$work/GTest-1.10.0"
case_of no-mpi 'Programs of MPI' 'left out: no Open MPI: `make mpi`' -DPOLYPATH_VENV="$work/no-mpi"
case_of no-ucx 'Programs of MPI' 'left out: no UCX: `make mpi`' -DPOLYPATH_VENV="$work/no-ucx"
case_of no-nccl 'Comparison with NCCL' 'no nccl.h: `make test`' -DPOLYPATH_VENV="$work/no-nccl"
case_of no-nvshmem 'Comparison with NVSHMEM' 'no nvshmem.h: `make test`' \
  -DPOLYPATH_VENV="$work/no-nvshmem"
if ! command -v nvcc >/dev/null; then
  case_of no-nvcc Kernels 'nvcc was not found: `make setup`' -DPOLYPATH_VENV="$work/no-nvcc"
  case_of broken-nvcc Kernels 'nvcc does not work' -DPOLYPATH_VENV="$work/broken-nvcc"
fi
case_of package-only 'Tests, benchmarks, examples and kernels' 'left out: only the package' \
  -DPOLYPATH_PACKAGE_ONLY=ON -DPOLYPATH_VENV="$work/nothing" -DGTest_DIR="$work/GTest-1.13.0"
case_of no-benchmarks whole 'Kernels: by' -DPOLYPATH_BENCH=OFF
case_of no-cuda stops 'cuda.h and nvml.h were not found' -DPOLYPATH_VENV="$work/no-cuda"
case_of no-fmt stops 'fmt was not found: polypath needs 9 or newer' \
  -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
case_of old-fmt stops 'fmt 8.1.1 is too old: polypath needs 9 or newer' -Dfmt_DIR="$work/fmt-8.1.1"
case_of no-json stops 'nlohmann-json was not found: polypath needs 3.11' \
  -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
case_of old-json stops 'nlohmann-json 3.9.1 is too old: polypath needs 3.11' \
  -Dnlohmann_json_DIR="$work/nlohmann_json-3.9.1"
case_of old-toml stops 'toml\+\+ 2 is too old: polypath needs 3' \
  -DTOMLPLUSPLUS_INCLUDE_DIR="$work/toml-2"
case_of new-toml whole 'Kernels: by' -DTOMLPLUSPLUS_INCLUDE_DIR="$work/toml-3.4"
for part in */CMakeLists.txt; do
  part=${part%/*}
  [[ $part != @(tests|examples) ]] || continue
  case_of "alone-$part" whole 'Build files have been written'
  case_of "alone-$part-tests" whole 'Kernels: by' -DPOLYPATH_TESTS=ON -DPOLYPATH_BENCH=ON
done
case_of old-gcc stops 'GNU 9.4.0, which lacks parts of C\+\+20: polypath needs g\+\+ 11'
wait

for i in "${!names[@]}"; do
  if judge "${names[i]}" "${outcomes[i]}" "${said[i]}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: expected %s and "%s":\n' "${names[i]}" "${outcomes[i]}" "${said[i]}"
    cat "$work/${names[i]}.log"
  fi
done

# count STATUS NAME SAID: a case of the parts below; SAID explains a failure.
count() {
  if (($1 == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s:\n%s\n' "$2" "$3"
  fi
}

said=$(scripts/check_parts.py "$work"/build-alone-*)
count $? "parts alone" "$said"

# A second configuration changes no file that is compiled.
touch "$work/before"
cmake "$work/build-package-only" >/dev/null 2>&1
changed=$(find "$work/build-package-only/comm" "$work/build-package-only/sim" -newer "$work/before" -type f \
  -not -path '*/CMakeFiles/*.dir/*' -not -name '*.cmake')
[[ -z $changed && -f $work/build-package-only/comm/collectives_int8.txt ]]
count $? "configured again, and these files changed" "$changed"

# ---- An interpreter that is too old -------------------------------------------------------------

# All programs but every Python, and one that is too old.
mkdir "$work/bin"
ln -s /usr/bin/* /bin/* "$work/bin" 2>/dev/null
rm -f "$work"/bin/python*
printf '#!/bin/sh\necho 3.9.2\n' >"$work/bin/python3"
chmod +x "$work/bin/python3"
mkdir "$work/checkout"
cp -r scripts requirements*.txt CMakePresets.json "$work/checkout"
said=$(env -u PYTHON PATH="$work/bin" "$work/checkout/scripts/setup.sh" run 2>&1)
(($? != 0)) && grep -q 'needs Python 3.11 or newer, and python3 is 3.9.2' <<<"$said"
count $? "an old Python stops setup.sh" "$said"

# ---- When build.sh configures -------------------------------------------------------------------

# A cmake that writes down how it was called, and what the folder is configured for.
rm "$work/bin/cmake"
cat >"$work/bin/cmake" <<'EOF'
#!/bin/bash
echo "$*" >>calls
[[ $1 == --build ]] && exit
mkdir -p build/release
touch build/release/build.ninja
echo -n "${LEFT_OUT:-}" >build/release/excluded.txt
{ sed -n 's/.*-D\(POLYPATH_PACKAGE_ONLY\)=\(.*\)/\1:BOOL=\2/p' <<<"$*"
  echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD"; } >build/release/CMakeCache.txt
EOF
chmod +x "$work/bin/cmake"

# build CALLS ARGUMENT...: build.sh calls cmake in these ways, separated by commas.
build() {
  local checkout=$work/checkout expected=$1 calls
  [[ -d $checkout ]] || checkout=$work/moved
  shift
  rm -f "$checkout/calls"
  PATH=$work/bin:$PATH "$checkout/scripts/build.sh" "$@" >/dev/null 2>&1
  calls=$(paste -sd, "$checkout/calls" 2>/dev/null)
  [[ $calls == "$expected" ]]
  count $? "build.sh $*: expected $expected" "$calls"
}
package='--preset release -DPOLYPATH_PACKAGE_ONLY=ON' all='--preset release -DPOLYPATH_PACKAGE_ONLY=OFF'
built='--build build/release' contents='--build build/release --target package_contents'
build "$package,$contents" release package_contents
build "$contents" release package_contents
build "$all,$built" release
build "$contents" release package_contents # what is configured for everything stays so
build "$built" release
mkdir "$work/checkout/.venv"
echo nvcc >"$work/checkout/.venv/.stamp-dev"
LEFT_OUT=Tests build "$all,$built" release # setup.sh brought something
LEFT_OUT=Tests build "$all,$built" release # something was left out
build "$all,$built" release                # it is there now
build "$built" release
mv "$work/checkout" "$work/moved"
build "--fresh $all,$built" release

echo "$passed passed, $failed failed"
((failed == 0))
