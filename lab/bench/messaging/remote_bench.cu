#include "remote_bench.cuh"
