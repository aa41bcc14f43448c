/* polypath: where ranks meet whose kernels make collectives (polypath/device/collectives.cuh).
 *
 * One handle serves one kernel of each rank at a time, as one stream's kernels after one another
 * are. Destroy it before its communicator. Errors, units and strings: polypath.h.
 */
#ifndef POLYPATH_MESSAGING_COLLECTIVES_H
#define POLYPATH_MESSAGING_COLLECTIVES_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct polypath_device_collectives polypath_device_collectives;

/* Collective, for eight ranks of one node at most: POLYPATH_NOT_SUPPORTED for more. */
POLYPATH_API polypath_status
polypath_device_collectives_create(polypath_comm* comm, polypath_device_collectives** handle);
/* The same for all `ranks` ranks of a communicator that this process has. */
POLYPATH_API polypath_status polypath_device_collectives_create_all(
    polypath_comm* const* comms, int ranks, polypath_device_collectives** handles);

/* Collective. Work of all ranks that uses it must have completed. After every status
 * but POLYPATH_INVALID_ARGUMENT the handle is gone. NULL is not allowed. */
POLYPATH_API polypath_status
polypath_device_collectives_destroy(polypath_device_collectives* handle);
POLYPATH_API polypath_status
polypath_device_collectives_destroy_all(polypath_device_collectives* const* handles, int ranks);

/* A polypath::device::collectives_view (polypath/device/collectives_view.hpp), `bytes` its size,
 * with the communicator's patience of now. What it points to is the handle's.
 * POLYPATH_INVALID_ARGUMENT: another size, as of the headers of another version. */
POLYPATH_API polypath_status polypath_device_collectives_view(
    const polypath_device_collectives* handle, void* view, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
