// polypath in kernels: queues, pairs, matching, active messages, channels, memory and collectives,
// without the CPU. CUDA C++17, headers alone, no relocatable device code; the host makes what
// kernels are given (polypath/messaging.h).
#pragma once

#include "polypath/device/active_messages.cuh"
#include "polypath/device/channel.cuh"
#include "polypath/device/collectives.cuh"
#include "polypath/device/group.cuh"
#include "polypath/device/match_hashed.cuh"
#include "polypath/device/match_partitioned.cuh"
#include "polypath/device/match_unique.cuh"
#include "polypath/device/matcher_mpi.cuh"
#include "polypath/device/pool.cuh"
#include "polypath/device/queue.cuh"
#include "polypath/device/shared_pool.cuh"
#include "polypath/device/spsc_queue.cuh"
