// The simulated driver of this process: at most one, made once and never destroyed.
#pragma once

namespace polypath::sim {

class Driver;

/// Makes the driver of the node that POLYPATH_NODE names, once, as read_mode() says. Failure
/// NO_DEVICE, with the reason on stderr, when there is no such node or mode; NOT_INITIALIZED in a
/// child of a process that had used the driver when it forked. Any thread may call.
void initialise_driver();
/// Failure NOT_INITIALIZED before initialise_driver(), and in such a child. Lock-free.
Driver& driver_instance();
/// To be called when a program begins to use more than NVML: from now on children cannot use the
/// driver.
void forbid_children();

}  // namespace polypath::sim
