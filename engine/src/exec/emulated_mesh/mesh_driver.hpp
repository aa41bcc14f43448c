// The driver of a node on which a mesh is emulated: a table that behaves as the one it wraps, but
// carries copies between GPUs over emulated links, as lane kernels (docs/emulated-mesh.md).
#pragma once

#include <memory>
#include <vector>

#include "exec/emulated_mesh/emulated_links.hpp"

namespace polypath {

/// Replaced: cuMemcpyAsync, and memcpy nodes of graphs. A copy goes over an emulated link when it
/// is issued in a GPU's primary context, and both ranges lie on different GPUs whose link is
/// emulated, each within one allocation: from cuMemAlloc of its GPU's primary context, opened from
/// another process by the context that copies, or mapped through this table, as the engine's
/// staging memory is, for the GPU that copies. The wrapped driver carries every other copy.
///
/// Entry points are plain C functions, so what they use is one state of the process: one mesh at a
/// time. It lives as long as the table has an owner. A later request for the same mesh gets it,
/// too. Its functions are thread-safe.
///
/// `mesh`: as mesh_node.hpp made it. `links`: what was found for each link. Makes the contexts of
/// all linked GPUs and measures the links: a second or two. Throws InvalidArgument when another
/// mesh is emulated, NotSupported and DriverError as EmulatedLinks.
std::shared_ptr<const CudaDriver> mesh_driver(std::shared_ptr<const CudaDriver> driver,
                                              const Node& mesh, std::vector<EmulatedLink>& links);

}  // namespace polypath
