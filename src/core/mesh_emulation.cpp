#include "core/mesh_emulation.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "core/classifier.hpp"
#include "exec/context_guard.hpp"
#include "exec/relaxed_capture.hpp"
#include "topology/emulated_mesh.hpp"
#include "topology/fingerprint.hpp"
#include "tune/calibrate_mesh.hpp"

namespace polypath {
namespace {

/// The GPU that a range lies on, if peers' kernels reach all of it; -1 otherwise.
int reachable_gpu(const CudaDriver& driver, Devices& devices, ImportedMemories& imports,
                  CUcontext caller, CUdeviceptr address, std::uint64_t bytes) {
  const PointerInfo info = inspect(driver, imports, address);
  if (info.kind != PointerInfo::Kind::device || bytes > info.bytes - (address - info.start))
    return -1;
  const bool reachable = info.import != nullptr
                             ? info.context == caller
                             : info.plain && info.context == devices.context_if_active(info.gpu);
  return reachable ? info.gpu : -1;
}

}  // namespace

void refuse_simulated_mesh(const Options& options) {
  if (options.emulate_mesh_gbps > 0 && !options.node.empty())
    throw InvalidArgument(
        "emulate_mesh is for this machine's GPUs; to see a mesh simulated, name its node: --node "
        "narval, or POLYPATH_NODE=narval (`polypath nodes` lists them)");
}

NodeSource with_emulated_mesh(NodeSource source, double gbps) {
  if (gbps == 0 || gbps == source.emulated_mesh_gbps) return source;
  if (source.simulated)
    throw InvalidArgument("emulate_mesh is for real GPUs, and this node is simulated");
  source.node = emulated_mesh(source.node, gbps);
  source.emulated_mesh_gbps = gbps;
  source.fingerprint =
      fingerprint(source.node, fmt::format("{}, emulated mesh {}", source.driver_version, gbps));
  // What was measured of the host links holds; choices for an NVSwitch do not, and nothing is kept.
  source.profile_file.clear();
  source.profile_state += ", but for its NVLinks: the mesh is emulated";
  source.tuned.clear();
  return source;
}

std::unique_ptr<EmulatedMesh> make_emulated_mesh(const NodeSource& source, Devices& devices) {
  if (source.emulated_mesh_gbps == 0) return nullptr;
  const RelaxedCapture relaxed(*source.driver);
  auto mesh = std::make_unique<EmulatedMesh>(source.driver, source.node, devices);
  calibrate_mesh(*mesh, *source.driver, source.node);
  return mesh;
}

CUresult issue_native(const CopyEngine& copies, const CudaDriver& driver, Devices& devices,
                      ImportedMemories& imports, const Transfer& transfer) {
  const auto by_driver = [&] {
    return driver.memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream);
  };
  if (!copies.emulates()) return by_driver();
  ContextGuard guard(driver);
  CUcontext context = guard.saved();
  if (!is_special_stream(transfer.stream))
    POLYPATH_CHECK(driver, stream_get_ctx(transfer.stream, &context));
  const int gpu = devices.gpu_of(context);
  const int from = reachable_gpu(driver, devices, imports, context, transfer.src, transfer.bytes);
  const int to = reachable_gpu(driver, devices, imports, context, transfer.dst, transfer.bytes);
  if (from < 0 || to < 0 || gpu < 0) return by_driver();
  guard.use(context);
  return copies.issue(transfer.dst, transfer.src, transfer.bytes,
                      {MemoryId::gpu(from), MemoryId::gpu(to), gpu}, transfer.stream);
}

}  // namespace polypath
