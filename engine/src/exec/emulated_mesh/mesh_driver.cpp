#include "exec/emulated_mesh/mesh_driver.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/pointer_attributes.hpp"
#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// Nothing of an address that the driver cannot be asked about.
PointerAttributes attributes_of(const CudaDriver& driver, CUdeviceptr address) {
  PointerAttributes attributes;
  try {
    attributes.ask(driver, address);
  } catch (const DriverError&) {
    return {};
  }
  return attributes;
}

/// Memory of which the driver does not say which GPUs' kernels reach it: what another process has,
/// and what was mapped through this table, as the engine's staging memory is.
struct Known {
  std::uint64_t bytes = 0;
  int gpu = -1;  ///< that has it; -1: unknown, or the host
  unsigned long long buffer = 0;
  std::uint64_t reached_by = 0;  ///< GPUs, a bit an index
};

std::uint64_t bit(int gpu) noexcept { return gpu < 0 ? 0 : std::uint64_t{1} << gpu; }

/// The table with all that its entries use.
class Mesh {
 public:
  Mesh(std::shared_ptr<const CudaDriver> driver, const Node& node);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  [[nodiscard]] const CudaDriver& table() const noexcept { return table_; }
  [[nodiscard]] const CudaDriver& wrapped() const noexcept { return *wrapped_; }
  [[nodiscard]] const std::vector<EmulatedLink>& links() const noexcept { return links_.links(); }
  [[nodiscard]] bool is_for(const CudaDriver& driver, const Node& node) const;

  /// The copy by a stream or node of `context`; nothing where the wrapped driver carries it.
  std::optional<LaneCopy> link_copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes,
                                    CUcontext context) const;
  void imported(CUdeviceptr start, std::uint64_t bytes, int gpu, CUcontext context);
  /// Kernels of `gpu` may reach a mapped range from now on.
  void allowed(CUdeviceptr start, std::uint64_t bytes, int gpu);
  void unmapped(CUdeviceptr start, std::uint64_t bytes);

 private:
  /// The GPU that has all of a range, if kernels of `context` may reach it; otherwise -1.
  [[nodiscard]] int gpu_with(CUdeviceptr address, std::uint64_t bytes, CUcontext context) const;
  /// What begins in the range; with mutex_ held.
  void forget(CUdeviceptr start, std::uint64_t bytes);

  std::shared_ptr<const CudaDriver> wrapped_;
  std::vector<double> gbps_;  // by link of the node; 0: not emulated
  EmulatedLinks links_;
  CudaDriver table_;
  mutable std::shared_mutex mutex_;
  std::map<CUdeviceptr, Known> known_;  // by start
};

std::atomic<Mesh*> current{nullptr};

// ---- the entries
// -----------------------------------------------------------------------------------

Mesh& mesh() { return *current.load(std::memory_order_acquire); }

CUresult memcpy_async(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
  const CudaDriver& driver = mesh().wrapped();
  CUcontext context = nullptr;
  CUcontext before = nullptr;
  std::optional<LaneCopy> copy;
  if (driver.stream_get_ctx(stream, &context) == CUDA_SUCCESS)
    copy = mesh().link_copy(dst, src, bytes, context);
  if (!copy) return driver.memcpy_async(dst, src, bytes, stream);
  // A copy may be issued in any context, a kernel only in its stream's.
  CUresult result = driver.ctx_get_current(&before);
  if (result == CUDA_SUCCESS && before != context) result = driver.ctx_set_current(context);
  if (result != CUDA_SUCCESS) return result;
  result = copy->launch(driver, stream);
  if (before != context) driver.ctx_set_current(before);
  return result;
}

std::optional<LaneCopy> link_copy(const CUDA_MEMCPY3D& what, CUcontext context) {
  if (what.srcMemoryType != CU_MEMORYTYPE_DEVICE || what.dstMemoryType != CU_MEMORYTYPE_DEVICE ||
      what.Height != 1 || what.Depth != 1)
    return std::nullopt;
  return mesh().link_copy(what.dstDevice + what.dstXInBytes, what.srcDevice + what.srcXInBytes,
                          what.WidthInBytes, context);
}

CUresult graph_add_memcpy_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                               std::size_t count, const CUDA_MEMCPY3D* what, CUcontext context) {
  const CudaDriver& driver = mesh().wrapped();
  auto copy = link_copy(*what, context);
  if (!copy) return driver.graph_add_memcpy_node(node, graph, after, count, what, context);
  LaneCopy::Arguments arguments{};
  const CUDA_KERNEL_NODE_PARAMS params = copy->node_params(arguments);
  return driver.graph_add_kernel_node(node, graph, after, count, &params);
}

/// A node that was a kernel cannot become a copy, nor the other way round: the driver says so.
CUresult graph_exec_memcpy_node_set_params(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_MEMCPY3D* what, CUcontext context) {
  const CudaDriver& driver = mesh().wrapped();
  auto copy = link_copy(*what, context);
  if (!copy) return driver.graph_exec_memcpy_node_set_params(executable, node, what, context);
  LaneCopy::Arguments arguments{};
  const CUDA_KERNEL_NODE_PARAMS params = copy->node_params(arguments);
  return driver.graph_exec_kernel_node_set_params(executable, node, &params);
}

void memory_imported(CUdeviceptr start, std::size_t bytes, int gpu, CUcontext context) {
  static std::atomic<bool> logged{false};
  if (!logged.exchange(true))
    log_warn(
        "this emulated mesh carries another process's data: kernels of several processes take "
        "turns on a GPU, so programs of several processes that compute are slower here than on a "
        "mesh (docs/emulated-mesh.md)");
  mesh().imported(start, bytes, gpu, context);
}

CUresult mem_set_access(CUdeviceptr start, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  const CUresult result = mesh().wrapped().mem_set_access(start, bytes, access, count);
  for (std::size_t i = 0; result == CUDA_SUCCESS && i < count; ++i)
    if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      mesh().allowed(start, bytes, access[i].location.id);
  return result;
}

CUresult mem_unmap(CUdeviceptr start, std::size_t bytes) {
  mesh().unmapped(start, bytes);
  return mesh().wrapped().mem_unmap(start, bytes);
}

// ---- the mesh
// --------------------------------------------------------------------------------------

std::vector<double> rates(const Node& node) {
  std::vector<double> gbps;
  for (const Link& link : node.links) gbps.push_back(is_emulated(link) ? link.gbps : 0);
  return gbps;
}

Mesh::Mesh(std::shared_ptr<const CudaDriver> driver, const Node& node)
    : wrapped_(std::move(driver)), gbps_(rates(node)), links_(wrapped_, node), table_(*wrapped_) {
  links_.calibrate();
  table_.memcpy_async = &memcpy_async;
  table_.memory_imported = &memory_imported;
  if (wrapped_->mem_set_access != nullptr) table_.mem_set_access = &mem_set_access;
  if (wrapped_->mem_unmap != nullptr) table_.mem_unmap = &mem_unmap;
  // Without kernel nodes there are no graphs.
  const bool kernel_nodes = wrapped_->graph_add_kernel_node != nullptr &&
                            wrapped_->graph_exec_kernel_node_set_params != nullptr;
  table_.graph_add_memcpy_node =
      kernel_nodes && wrapped_->graph_add_memcpy_node != nullptr ? &graph_add_memcpy_node : nullptr;
  if (wrapped_->graph_exec_memcpy_node_set_params != nullptr)
    table_.graph_exec_memcpy_node_set_params = &graph_exec_memcpy_node_set_params;
  current.store(this, std::memory_order_release);
}

Mesh::~Mesh() {
  Mesh* expected = this;
  current.compare_exchange_strong(expected, nullptr);
}

bool Mesh::is_for(const CudaDriver& driver, const Node& node) const {
  return driver.memcpy_async == wrapped_->memcpy_async && rates(node) == gbps_;
}

std::optional<LaneCopy> Mesh::link_copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes,
                                        CUcontext context) const {
  const int gpu = links_.gpu_of(context);
  if (gpu < 0 || bytes == 0) return std::nullopt;
  const int from = gpu_with(src, bytes, context);
  if (from < 0) return std::nullopt;
  return links_.link_copy(dst, src, bytes, from, gpu_with(dst, bytes, context), gpu);
}

int Mesh::gpu_with(CUdeviceptr address, std::uint64_t bytes, CUcontext context) const {
  const PointerAttributes range = attributes_of(*wrapped_, address);
  {
    const std::shared_lock lock(mutex_);
    const auto after = known_.upper_bound(address);
    if (after != known_.begin()) {
      const auto& [start, memory] = *std::prev(after);
      // Another number: it was closed, and something else has its addresses.
      if (address - start < memory.bytes && range.buffer == memory.buffer) {
        const bool reached = (memory.reached_by & bit(links_.gpu_of(context))) != 0;
        return reached && bytes <= memory.bytes - (address - start) ? memory.gpu : -1;
      }
    }
  }
  const bool whole = range.type == CU_MEMORYTYPE_DEVICE && range.plain() &&
                     bytes <= range.bytes - (address - range.start);
  return whole ? links_.gpu_of(range.context) : -1;
}

void Mesh::imported(CUdeviceptr start, std::uint64_t bytes, int gpu, CUcontext context) {
  const unsigned long long buffer = attributes_of(*wrapped_, start).buffer;
  const std::lock_guard lock(mutex_);
  forget(start, bytes);  // what was open there before is gone
  known_[start] = {bytes, gpu, buffer, bit(links_.gpu_of(context))};
}

void Mesh::allowed(CUdeviceptr start, std::uint64_t bytes, int gpu) {
  const PointerAttributes range = attributes_of(*wrapped_, start);
  const std::lock_guard lock(mutex_);
  const auto before = known_.find(start);
  if (before != known_.end() && before->second.bytes == bytes &&
      before->second.buffer == range.buffer) {
    before->second.reached_by |= bit(gpu);
    return;
  }
  forget(start, bytes);
  const int holder = range.type == CU_MEMORYTYPE_DEVICE ? range.ordinal : -1;
  known_[start] = {bytes, holder, range.buffer, bit(gpu)};
}

void Mesh::unmapped(CUdeviceptr start, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  forget(start, bytes);
}

void Mesh::forget(CUdeviceptr start, std::uint64_t bytes) {
  known_.erase(known_.lower_bound(start), known_.lower_bound(start + bytes));
}

}  // namespace

std::shared_ptr<const CudaDriver> mesh_driver(std::shared_ptr<const CudaDriver> driver,
                                              const Node& node, std::vector<EmulatedLink>& links) {
  static std::mutex mutex;
  static std::weak_ptr<Mesh> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Mesh> mesh = known.lock();
  if (mesh != nullptr && !mesh->is_for(*driver, node))
    throw InvalidArgument("another mesh is emulated already: there is one a process");
  if (mesh == nullptr) {
    const RelaxedCapture relaxed(*driver);
    mesh = std::make_shared<Mesh>(std::move(driver), node);
    known = mesh;
  }
  links = mesh->links();
  return {mesh, &mesh->table()};
}

}  // namespace polypath
