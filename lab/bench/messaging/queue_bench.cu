#include "queue_bench.cuh"
