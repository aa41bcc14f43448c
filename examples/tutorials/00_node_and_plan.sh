#!/bin/sh
# Tutorial 00: see a node and a plan. docs/tutorials/00-node-and-plan.md explains the output.
set -eu

# The node as a graph: links, capacities, who shares what. Without --node: this machine.
polypath topo --node narval

# Routes, shares and chunks of one transfer; nothing runs.
polypath plan gpu0 gpu1 64M --node narval

# The same transfer without host memory.
polypath plan gpu0 gpu1 64M --node narval --routes direct,gpu

# The plan, and the native copy, on the simulated driver: every byte is compared.
polypath bench p2p --node narval --sizes 16M --iterations 1 --warmup 1
