// What a context does differently while a mesh is emulated (docs/emulated-mesh.md).
#pragma once

#include <memory>

#include "core/node_source.hpp"
#include "exec/copy_engine.hpp"
#include "exec/devices.hpp"

namespace polypath {

struct Transfer;
class ImportedMemories;

/// Throws InvalidArgument when a mesh is to be emulated on a simulated node.
void refuse_simulated_mesh(const Options& options);

/// `source` as a mesh of `gbps` GB/s a link, with its host links and without what was tuned, which keeps no
/// profile; unchanged for 0, or when it is that already.
/// Throws InvalidArgument for a simulated node, and as emulated_mesh() of topology.
NodeSource with_emulated_mesh(NodeSource source, double gbps);

/// What carries the copies between GPUs, calibrated (a second or two); null when no mesh is emulated. Makes the
/// contexts of all linked GPUs. Throws NotSupported, DriverError.
std::unique_ptr<EmulatedMesh> make_emulated_mesh(const NodeSource& source, Devices& devices);

/// Issues the native copy as the caller asked for it: one cuMemcpyAsync; on an emulated mesh, for plain memory
/// of two GPUs, each within one allocation of its GPU's primary context or opened from another process
/// by the stream's context, the link's kernel, on the
/// same stream. The driver's result; throws DriverError when the stream cannot be asked.
CUresult issue_native(const CopyEngine& copies, const CudaDriver& driver, Devices& devices,
                      ImportedMemories& imports, const Transfer& transfer);

}  // namespace polypath
