# Thin names for the scripts; each can be run by hand as well.
.DEFAULT_GOAL := help
.PHONY: help demo setup mpi test soak lint format tidy bench docs wheel clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## the main job on this machine's GPUs, or on a simulated node; needs no more than that takes
	@scripts/setup.sh run
	@scripts/build.sh release package_contents
	@.venv/bin/polypath demo

setup: ## everything that is needed, into .venv and build/release
	@scripts/setup.sh
	@scripts/build.sh release

mpi: ## Open MPI and UCX into .venv, and what runs on them (tests and benchmarks)
	@scripts/setup.sh mpi
	@scripts/build.sh release

test: ## all tests: lint, C++, sanitizers, Python
	@scripts/test.sh

soak: ## what is long by nature: more seeds, nodes of eight GPUs in full; before a release
	@scripts/test.sh --soak

lint: ## the dependency rule, public headers, format
	@scripts/setup.sh
	@scripts/lint.sh

format: ## formats all sources in place
	@scripts/setup.sh
	@scripts/format.sh

tidy: setup ## clang-tidy over the sources, where it is installed
	@run-clang-tidy -quiet -p build/release '(node|engine|comm|messaging|uniconn|lab|sim|src)/.*'

bench: setup ## all benchmarks, JSON and plots into build/bench
	@scripts/bench.sh

docs: setup ## the documentation as a web site, into build/docs
	@scripts/docs.sh

wheel: setup ## the Python wheel, into dist, tried in an environment of its own
	@scripts/wheel.sh

clean: ## removes what was built; .venv stays
	rm -rf build dist
