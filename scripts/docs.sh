#!/usr/bin/env bash
# The documentation as a web site, in build/docs: README.md, ARCHITECTURE.md and the like, docs/, and
# the settings and the C API from their sources. Fails on a broken link.
set -euo pipefail
source "$(dirname "$0")/common.sh"

pages=build/docs-pages
rm -rf "$pages" build/docs
mkdir -p "$pages"
# The same relative links hold here and in the repository.
cp -r docs "$pages/docs"
cp ./*.md "$pages"
mv "$pages/README.md" "$pages/index.md"
sed -i 's/README\.md/index.md/g' "$pages"/*.md
for folder in include examples nodes bench/results; do
  [[ -d $folder ]] && mkdir -p "$pages/$folder" && cp -r "$folder/." "$pages/$folder"
done
cp LICENSE "$pages"

python scripts/reference_pages.py "$pages/docs"
mkdocs --quiet build --strict
say "Documentation: build/docs/index.html"
