#!/usr/bin/env bash
# check_setup.sh [RELEASE...]: runs the first two commands of README.md on bare Debian systems (default: bookworm
# and trixie), and installs the wheel there. As root, with debootstrap; takes some ten minutes. `make test` runs
# scripts/check_configure.sh instead.
#
# A case prints one line with its seconds, and leaves its output in build/check-setup/logs. Bare systems are kept
# in build/check-setup, as is what pip downloads. Mirror, proxies, certificates and pip's configuration are those
# of this machine, read as it runs. LIMIT_S: how long a second run may take (default 10; for a quiet machine).
set -uo pipefail
source "$(dirname "$0")/common.sh"

((EUID == 0)) || fail "check_setup.sh needs root: it makes bare systems and changes into them"
command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
releases=("$@")
(($#)) || releases=(bookworm trixie)
limit_s=${LIMIT_S:-10}
store=$PWD/build/check-setup
logs=$store/logs
rm -rf "$logs"
mkdir -p "$logs" "$store/pip"

# The commands of the first block of the README, without comments.
mapfile -t commands < <(
  awk '/^```sh$/ { inside = 1; next } /^```$/ { exit } inside' README.md | sed 's/ *#.*//;/^$/d')
((${#commands[@]} == 2)) || fail "the first block of README.md has ${#commands[@]} commands, not two"

# ---- Bare systems -------------------------------------------------------------------------------

# Where this machine's packages are from, and the keys that sign them.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
IFS='|' read -r mirror keyring < <(apt-get indextargets --format '$(REPO_URI)|$(SIGNED_BY)|$(CODENAME)' \
  'Identifier: Packages' | sed -n "s/|$codename\$//p" | head -n 1)
keys=()
[[ -f ${keyring:-} ]] && keys=(--keyring="$keyring")

# make_bare RELEASE: the archive of a system with `make` and nothing else that polypath needs.
make_bare() {
  local archive=$store/$1.tar folder=$store/bare-$1
  [[ -f $archive ]] && return
  rm -rf "$folder"
  debootstrap --variant=minbase --include=make "${keys[@]}" "$1" "$folder" "$mirror" \
    >"$logs/debootstrap-$1.log" 2>&1 || return
  rm -f "$folder"/var/cache/apt/archives/*.deb
  tar -C "$folder" -cf "$archive.part" . && mv "$archive.part" "$archive"
  rm -rf "$folder"
}

# Names of the environment that say how to reach the network.
passed_on=(PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT PIP_TRUSTED_HOST http_proxy https_proxy
  no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY all_proxy ALL_PROXY)
# The certificates of this machine, which may have more than Debian's. Debian's package would overwrite them.
certificates=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
their_certificates=/etc/check-setup.pem

# unpack RELEASE NAME: makes system $store/NAME, configured as this machine is.
unpack() {
  local root=$store/$2 file
  remove "$2"
  mkdir "$root"
  tar -C "$root" -xf "$store/$1.tar"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc"
  apt-config dump | grep -iE '^Acquire::(https?|Check|Retries|Max-)' >"$root/etc/apt/apt.conf.d/99check-setup"
  cp -r /etc/apt/auth.conf.d "$root/etc/apt" 2>/dev/null
  for file in /etc/pip.conf "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    if [[ -f $file ]]; then cat "$file" >>"$root/etc/pip.conf"; fi
  done
  if [[ -f $certificates ]]; then install -m 644 "$certificates" "$root$their_certificates"; fi
}

remove() { rm -rf "${store:?}/$1"; }

# inside NAME [--without-network] USER FOLDER COMMAND: runs it there by bash, with no environment but what
# reaches the network. Mounts are of a namespace of its own, and gone with the command.
inside() {
  local root=$store/$1 network=() environment=() name
  shift
  if [[ $1 == --without-network ]]; then network=(--net) && shift; fi
  for name in "${passed_on[@]}"; do
    if [[ -n ${!name:-} ]]; then environment+=("$name=${!name}"); fi
  done
  if [[ -f $root$their_certificates ]]; then environment+=("PIP_CERT=$their_certificates"); fi
  unshare --mount --pid --fork --kill-child --propagation private "${network[@]}" bash -c '
    root=$1 store=$2 user=$3 folder=$4 command=$5
    shift 5
    mkdir -p "$root/pip-cache" &&
      mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" &&
      mount --bind "$store/pip" "$root/pip-cache" || exit
    home=/root cache=/pip-cache
    [[ $user == root ]] || home=/home/$user cache=$home/.cache/pip
    exec env -i HOME="$home" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      PIP_CACHE_DIR="$cache" "$@" chroot --userspec="$user" "$root" \
      bash -c "cd \"\$1\" && eval \"\$2\"" _ "$folder" "$command"
  ' _ "$root" "$store" "$1" "$2" "$3" "${environment[@]}" </dev/null
}

# checkout NAME USER FOLDER: the project's files, as they are now, and the program of the README.
checkout() {
  mkdir -p "$store/$1$3"
  git ls-files -z --cached --others --exclude-standard |
    tar --null --ignore-failed-read -T - -cf - | tar -C "$store/$1$3" -xf -
  # It says whether it runs under the shim.
  printf '#!/bin/sh\ngrep -q libpolypath_preload.so /proc/self/maps && echo "your-app under polypath"\n' \
    >"$store/$1$3/your-app"
  chmod +x "$store/$1$3/your-app"
  inside "$1" root / "chown -R $2: '$3'"
}

# ---- Cases --------------------------------------------------------------------------------------

passed=0 failed=0

# case_of NAME COMMAND...: prints how it went. A case that needs another fails with it.
case_of() {
  local name=$1 log=$logs/${1//[^[:alnum:]]/-}.log status=0 start=$SECONDS
  [[ $name =~ ${ONLY:-.} ]] || return 0
  shift
  "$@" >"$log" 2>&1 || status=$?
  if ((status)); then
    failed=$((failed + 1))
    printf 'FAILED  %s: %d s; %s ends with:\n' "$name" $((SECONDS - start)) "${log#"$PWD/"}"
    tail -n 5 "$log"
  else
    passed=$((passed + 1))
    printf 'passed  %s: %d s\n' "$name" $((SECONDS - start))
  fi
}

# first_command NAME [--without-network] USER FOLDER: it ends with the demo's plot, after rows of both tables.
first_command() {
  local said
  said=$(inside "$@" "${commands[0]}" 2>&1)
  local status=$?
  echo "$said"
  ((status == 0)) && [[ $(tail -n 1 <<<"$said") == 'plot: out/'* ]] &&
    grep -q '^p2p, gpu0 to gpu1, on narval' <<<"$said" &&
    grep -q '^h2d, host0 to gpu0, on narval' <<<"$said" &&
    (($(grep -c '512M .* yes ' <<<"$said") == 2))
}

second_command() {
  local said
  said=$(inside "$@" "${commands[1]}" 2>&1)
  local status=$?
  echo "$said"
  ((status == 0)) && grep -qx 'your-app under polypath' <<<"$said"
}

both_commands() { first_command "$@" && second_command "$@"; }

# again ARGUMENT...: as first_command, in time.
again() {
  local start=$SECONDS
  first_command "$@" || return
  ((SECONDS - start <= limit_s)) || { echo "took $((SECONDS - start)) s, more than $limit_s"; return 1; }
}

by_hand='As root: '

# It stops, and names everything at once.
without_sudo() {
  local said
  said=$(inside "$@" "${commands[0]}" 2>&1) && return 1
  echo "$said"
  grep -qE '^error: missing packages:( [^ ]+)* python3-venv g\+\+ libfmt-dev libtomlplusplus-dev' <<<"$said" &&
    grep -q "^${by_hand}apt-get install " <<<"$said"
}

# by_the_list NAME USER FOLDER OTHER...: root installs what the user was told to, and other packages.
by_the_list() {
  local install
  install=$(inside "$1" "$2" "$3" "${commands[0]}" 2>&1 | sed -n "s/^$by_hand//p")
  [[ -n $install ]] &&
    inside "$1" root / "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && ${install/install/install -qq -y} ${*:4}"
}

gtest_without_gmock() {
  by_the_list "$1" user "$2" libgtest-dev && inside "$1" root / '! ls /usr/include/gmock' &&
    checkout "$1" user "$3" && first_command "$1" user "$3" &&
    # LD_PRELOAD cannot hold this path: said so, and not run without polypath.
    ! second_command "$1" user "$3" &&
    { inside "$1" user "$3" "${commands[1]}" 2>&1 || true; } | grep 'cannot be preloaded'
}

wheel() {
  cp dist/*.whl "$store/$1" &&
    inside "$1" root / 'apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv' &&
    inside "$1" root /root 'python3 -m venv empty && empty/bin/pip install -q /*.whl && empty/bin/polypath demo' &&
    inside "$1" root /root 'empty/bin/polypath run -- grep libpolypath_preload.so /proc/self/maps'
}

make_wheel() {
  local wheel=(dist/*.whl)
  # Made of what is here now.
  [[ -f ${wheel[0]} ]] && [[ -z $(git ls-files -z | xargs -0 find 2>/dev/null -newer "${wheel[0]}" | head -n 1) ]] ||
    make wheel
}

case_of "the wheel, here" make_wheel
with_user='useradd --create-home user'
special='/home/user/with space and ü'
for release in "${releases[@]}"; do
  say "$release"
  start=$SECONDS
  if [[ -z ${mirror:-} ]] || ! make_bare "$release"; then
    echo "skipped $release: debootstrap cannot get it from this machine's mirror"
    continue
  fi
  echo "bare system: $((SECONDS - start)) s"

  unpack "$release" root && checkout root root /root/polypath
  case_of "$release, nothing installed" both_commands root root /root/polypath
  case_of "$release, again, in $limit_s s" again root root /root/polypath
  case_of "$release, again, without network" again root --without-network root /root/polypath
  remove root

  unpack "$release" user && inside user root / "$with_user" && checkout user user /home/user/polypath
  case_of "$release, a user without sudo" without_sudo user user /home/user/polypath
  if [[ $release == "${releases[0]}" ]]; then
    case_of "$release, gtest without gmock, in '$special'" gtest_without_gmock user /home/user/polypath "$special"
    case_of "$release, again in '$special'" again user user "$special"
  fi
  remove user

  unpack "$release" wheel
  case_of "$release, the wheel in an empty environment" wheel wheel
  remove wheel
done

echo "$passed passed, $failed failed"
((failed == 0))
