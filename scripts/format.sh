#!/usr/bin/env bash
# Formats all C, C++ and Python sources in place.
set -euo pipefail
source "$(dirname "$0")/common.sh"

source_files | xargs -0 clang-format -i
ruff check --quiet --fix-only .
ruff format .
