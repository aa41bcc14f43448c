#!/usr/bin/env bash
# docs.sh [--browser]: the documentation as a web site, in build/docs: README.md, ARCHITECTURE.md and the like,
# docs/, the settings, options and Python API from their sources, and the API of all public headers by Doxygen. Fails
# on a warning: a broken link or anchor, a page that the navigation lacks, a wrong comment of a header.
#
#   --browser   then looks at the site in a browser without a window (check_site.py), which it installs. `make test`
#               does not: it builds no site, and the browser takes 306 MB (100 MB to download). Where apt has no
#               browser the check is skipped, and a line says so.
set -euo pipefail
source "$(dirname "$0")/common.sh"

browser=''
case ${1:-} in
  '') ;;
  --browser) browser=1 ;;
  *) fail "docs.sh knows --browser, not '$1'" ;;
esac

as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }

# install PACKAGE: by apt, or ends with the command that does.
install() {
  local command="apt-get install -y --no-install-recommends $1"
  command -v apt-get >/dev/null || fail "$1 is missing: install it, then run this again"
  as_root true 2>/dev/null || fail "$1 is missing. As root: $command"
  say "Installing $1"
  as_root apt-get -qq update && as_root env DEBIAN_FRONTEND=noninteractive $command -qq >/dev/null ||
    fail "apt-get could not install $1; by hand: $command"
}

command -v doxygen >/dev/null || install doxygen

pages=build/docs-pages
rm -rf "$pages" build/docs build/doxygen
mkdir -p "$pages" build/doxygen
python scripts/gather_pages.py "$pages"
doxygen docs/Doxyfile
mv build/doxygen/html "$pages/api"
python scripts/reference_pages.py "$pages/docs"

# --quiet would hide warnings from --strict.
mkdocs build --strict 2> >(grep -v '^INFO' >&2)
say "Documentation: build/docs/index.html"
[[ -n $browser ]] || exit 0

if ! python scripts/check_site.py --find >/dev/null 2>&1; then
  as_root apt-get -qq update 2>/dev/null || true
  if ! apt-cache show chromium-headless-shell >/dev/null 2>&1; then
    say "The site was not looked at in a browser: there is none, and apt has no chromium-headless-shell"
    exit 0
  fi
  install chromium-headless-shell
fi
python scripts/check_site.py build/docs
