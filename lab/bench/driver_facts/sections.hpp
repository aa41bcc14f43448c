// The sections of the program, each in the file of its name. They throw DriverError, or Error when
// a byte is wrong; what the node cannot show they report as skipped.
#pragma once

#include "report.hpp"
#include "workbench.hpp"

namespace polypath::facts {

/// CPU time of single driver calls.
void call_costs(Workbench& bench, Report& report);
/// What access to mapped memory costs the thread that sets it, for its own GPU and for others.
void access_costs(Workbench& bench, Report& report);
/// What cuPointerGetAttributes says of each kind of memory.
void pointer_facts(Workbench& bench, Report& report);
/// Whether the default streams of two GPUs wait for each other where one copies to the other's
/// memory (1: yes).
void default_streams(Workbench& bench, Report& report);
/// How many streams that are held back stop a copy of another stream, by the directions of the
/// copies. After it the hardware queues are dealt out: the last section of a process, or alone.
void held_queues(Workbench& bench, Report& report);
/// Time between two copies queued on one stream, by their size.
void copy_gaps(Workbench& bench, Report& report);
/// What waits, values and kernels between two copies of a stream add to their gap.
void between_copies(Workbench& bench, Report& report);
/// What a staged route costs a chunk, alone, and for one small chunk.
void staged_gaps(Workbench& bench, Report& report);
/// CPU time of each call of a CUDA graph, by number of nodes and by what they depend on.
void graph_costs(Workbench& bench, Report& report);
/// What the host links of one, two and all GPUs carry at once.
void host_links(Workbench& bench, Report& report);

/// What kernels store to other GPUs at most, next to what copy engines carry.
void peer_stores(Workbench& bench, Report& report);
/// How long driver calls take while kernels of all GPUs run, and while another GPU's stream takes no
/// more launches; whether they return first (1: yes). Half a minute.
void calls_beside_kernels(Workbench& bench, Report& report);
/// What kernels of one process and copies of another do to each other on one GPU. Some ten seconds.
void shared_gpu(Workbench& bench, Report& report);
/// The other process of shared_gpu: this program, with this as its one argument.
inline constexpr const char* kShareGpu = "--share-gpu";
void share_gpu(NodeSource source);

}  // namespace polypath::facts
