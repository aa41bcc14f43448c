#!/usr/bin/env bash
# What a compiler does not see: the dependency rule, names and prose, the files that pages name, headers that stand
# alone, the table of the C API for Python, format.
set -uo pipefail
source "$(dirname "$0")/common.sh"

status=0
python scripts/check_layers.py || status=1
python scripts/check_words.py || status=1
python scripts/check_ways.py || status=1
python scripts/generate_c_abi.py --check || status=1
scripts/check_headers.sh || status=1
unformatted=$(source_files | xargs -0 clang-format --dry-run 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning.*/\1/p' | sort -u)
if [[ -n $unformatted ]]; then
  printf 'not formatted (make format):\n%s\n' "$unformatted"
  status=1
fi
ruff check --quiet . || status=1
ruff format --quiet --check . || status=1
((status)) || echo "lint: all clean"
exit $status
