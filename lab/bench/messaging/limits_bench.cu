#include "limits_bench.cuh"
