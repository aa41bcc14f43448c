#!/usr/bin/env bash
# The documentation as a web site, in build/docs: README.md, ARCHITECTURE.md and the like, docs/, the
# settings, options and Python API from their sources, and the API of all public headers by Doxygen. Fails
# on a warning: a broken link or anchor, a page that the navigation lacks, a wrong comment of a header.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if ! command -v doxygen >/dev/null; then
  install='apt-get install -y --no-install-recommends doxygen'
  command -v apt-get >/dev/null || fail "doxygen is missing: install it, then run this again"
  as_root=()
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || fail "doxygen is missing. As root: $install"
    as_root=(sudo)
  fi
  say "Installing doxygen"
  "${as_root[@]}" apt-get -qq update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install -qq >/dev/null ||
    fail "apt-get could not install doxygen; by hand: $install"
fi

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
