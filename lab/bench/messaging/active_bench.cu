#include "active_bench.cuh"
