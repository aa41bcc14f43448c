/* polypath: messages between GPUs, and between GPU and CPU, without the CPU in their way. All of it
 * stands on a communicator (polypath/comm.h); kernels use polypath/device.cuh. */
#ifndef POLYPATH_MESSAGING_H
#define POLYPATH_MESSAGING_H

#include "polypath/messaging/channel.h"
#include "polypath/messaging/device_collectives.h"
#include "polypath/messaging/matching.h"
#include "polypath/messaging/pool.h"
#include "polypath/messaging/queue.h"

#endif
