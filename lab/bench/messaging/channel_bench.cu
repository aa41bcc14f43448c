#include "channel_bench.cuh"
