"""Benchmarks of unmodified MPI programs, with and without the shim."""
