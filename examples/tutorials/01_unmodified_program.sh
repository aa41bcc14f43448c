#!/bin/sh
# Tutorial 01: speed up a program with no change. docs/tutorials/01-unmodified-program.md explains
# the output.
set -eu
program=$(dirname "$0")/unmodified_program.py

# A machine without a GPU has no driver, so both runs use the simulated one. On a machine with GPUs
# leave out --node narval. The first run may not split: its copies are those of the driver.
polypath run --node narval --routes direct --stats text -- python "$program"

# Every path. The last lines are statistics: how many copies were split, and which routes they took.
polypath run --node narval --setting prepare=wait --setting copy_threads=4 --stats text -- \
  python "$program"
