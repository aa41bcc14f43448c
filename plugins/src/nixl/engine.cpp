// libplugin_POLYPATH.so: a back end of NIXL for transfers within a process, between memory of GPUs
// and of the host in any combination. A request is one batch of polypath
// (polypath_copy_batch_async) on a stream of its own.
//
// Built against the headers of NIXL, or for tests against the interface of version 1.3.1 (plug-in
// API 1). Needs nothing of NIXL's libraries: what the headers define inline is all that it uses.
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <backend/backend_plugin.h>
#include "polypath/polypath.h"

namespace {

constexpr const char* kName = "POLYPATH";

void tell(const std::string& what) noexcept {
  std::fprintf(stderr, "polypath: NIXL back end: %s\n", what.c_str());
}

/// The context of polypath, and functions of the driver that it uses. Thread-safe.
class Node {
 public:
  /// `settings`: of polypath, by name. Throws std::runtime_error.
  explicit Node(const nixl_b_params_t& settings) {
    std::vector<polypath_setting> list;
    for (const auto& [name, value] : settings) list.push_back({name.c_str(), value.c_str()});
    if (polypath_context_create(list.data(), list.size(), &context_) != POLYPATH_SUCCESS)
      throw std::runtime_error(polypath_last_error());
  }
  ~Node() { polypath_context_destroy(context_); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] polypath_context* context() const noexcept { return context_; }

  /// Calls a function of the driver. Throws std::runtime_error.
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const CUresult result = result_of(name, arguments...);
    if (result != CUDA_SUCCESS)
      throw std::runtime_error(std::string(name) + " failed: " + std::to_string(result));
  }
  template <typename... Arguments>
  [[nodiscard]] CUresult result_of(const char* name, Arguments... arguments) const noexcept {
    void* const function = polypath_driver_function(context_, name);
    if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
    return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
  }

  /// The GPU's primary context, made if need be. Throws std::runtime_error.
  CUcontext primary(int gpu) const {
    const std::lock_guard lock(mutex_);
    CUcontext& primary = primaries_[gpu];
    if (primary == nullptr) {
      call("cuInit", 0U);
      call("cuDevicePrimaryCtxRetain", &primary, CUdevice{gpu});
    }
    return primary;
  }

 private:
  polypath_context* context_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<int, CUcontext> primaries_;
};

/// A CUDA context that is current while it lives. Throws std::runtime_error.
class Current {
 public:
  Current(const Node& node, CUcontext context) : node_(node) {
    node_.call("cuCtxPushCurrent_v2", context);
  }
  ~Current() {
    CUcontext popped = nullptr;
    static_cast<void>(node_.result_of("cuCtxPopCurrent_v2", &popped));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Node& node_;
};

/// Registered memory. Host memory is pinned as long as it lives, unless it is so already.
class Memory final : public nixlBackendMD {
 public:
  Memory(const Node& node, const nixlBlobDesc& range, nixl_mem_t kind)
      : nixlBackendMD(true), node_(node), at_(reinterpret_cast<void*>(range.addr)) {
    if (kind != DRAM_SEG || range.len == 0) return;
    const Current current(node_, node_.primary(0));
    constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    is_pinned_ = node_.result_of("cuMemHostRegister_v2", at_, range.len, kFlags) == CUDA_SUCCESS;
  }
  ~Memory() override {
    if (!is_pinned_) return;
    try {
      const Current current(node_, node_.primary(0));
      node_.call("cuMemHostUnregister", at_);
    } catch (const std::exception& error) {
      tell(error.what());
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

 private:
  const Node& node_;
  void* at_;
  bool is_pinned_ = false;
};

/// One transfer, which may be posted again when it has ended.
class Request final : public nixlBackendReqH {
 public:
  /// Throws std::runtime_error.
  Request(const Node& node, nixl_xfer_op_t operation, const nixl_meta_dlist_t& local,
          const nixl_meta_dlist_t& remote)
      : node_(node) {
    const nixl_meta_dlist_t& to = operation == NIXL_WRITE ? remote : local;
    const nixl_meta_dlist_t& from = operation == NIXL_WRITE ? local : remote;
    if (to.descCount() != from.descCount()) throw std::runtime_error("lists differ in length");
    for (int i = 0; i < to.descCount(); ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (to[index].len != from[index].len) throw std::runtime_error("blocks differ in length");
      if (to[index].len == 0) continue;
      to_.push_back(reinterpret_cast<void*>(to[index].addr));
      from_.push_back(reinterpret_cast<const void*>(from[index].addr));
      bytes_.push_back(to[index].len);
    }
    const auto gpu_of = [](const nixl_meta_dlist_t& list) {
      return list.getType() == VRAM_SEG && list.descCount() > 0 ? static_cast<int>(list[0].devId)
                                                                : -1;
    };
    const int gpu = gpu_of(from) >= 0 ? gpu_of(from) : gpu_of(to) >= 0 ? gpu_of(to) : 0;
    primary_ = node_.primary(gpu);
    const Current current(node_, primary_);
    node_.call("cuStreamCreate", &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    try {
      node_.call("cuEventCreate", &end_, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
    } catch (...) {
      static_cast<void>(node_.result_of("cuStreamDestroy_v2", stream_));
      throw;
    }
  }
  /// Waits for a transfer under way: it cannot be taken back.
  ~Request() override {
    try {
      const Current current(node_, primary_);
      node_.call("cuStreamSynchronize", stream_);
      node_.call("cuEventDestroy_v2", end_);
      node_.call("cuStreamDestroy_v2", stream_);
    } catch (const std::exception& error) {
      tell(error.what());
    }
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Throws std::runtime_error.
  void post() {
    const Current current(node_, primary_);
    if (polypath_copy_batch_async(node_.context(), to_.size(), to_.data(), from_.data(),
                                  bytes_.data(), stream_) != POLYPATH_SUCCESS)
      throw std::runtime_error(polypath_last_error());
    node_.call("cuEventRecord", end_, stream_);
    is_posted_ = true;
  }
  nixl_status_t check() const noexcept {
    if (!is_posted_) return NIXL_ERR_NOT_POSTED;
    const CUresult result = node_.result_of("cuEventQuery", end_);
    if (result == CUDA_ERROR_NOT_READY) return NIXL_IN_PROG;
    return result == CUDA_SUCCESS ? NIXL_SUCCESS : NIXL_ERR_BACKEND;
  }

 private:
  const Node& node_;
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  CUcontext primary_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent end_ = nullptr;
  bool is_posted_ = false;
};

/// What `action` returns; an exception is told, and is `status`.
template <typename Action>
nixl_status_t guarded(nixl_status_t status, Action&& action) noexcept {
  try {
    return action();
  } catch (const std::exception& error) {
    tell(error.what());
    return status;
  }
}

/// For the agent's own memory. The agent makes calls for one request one after another.
class Engine final : public nixlBackendEngine {
 public:
  /// Parameters are settings of polypath. Throws std::runtime_error.
  explicit Engine(const nixlBackendInitParams* parameters)
      : nixlBackendEngine(parameters), node_(getCustomParams()) {}

  bool supportsRemote() const override { return false; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return false; }
  nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG, VRAM_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                            nixlBackendMD*& out) override {
    if (kind != DRAM_SEG && kind != VRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
    return guarded(NIXL_ERR_BACKEND, [&] {
      out = new Memory(node_, memory, kind);
      return NIXL_SUCCESS;
    });
  }
  nixl_status_t deregisterMem(nixlBackendMD* memory) override {
    delete memory;
    return NIXL_SUCCESS;
  }
  /// Local operations use what was registered.
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) override {
    output = input;
    return NIXL_SUCCESS;
  }
  nixl_status_t unloadMD(nixlBackendMD* /*input*/) override { return NIXL_SUCCESS; }
  nixl_status_t connect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* options) const override {
    if (agent != localAgent) return NIXL_ERR_NOT_SUPPORTED;
    if (options != nullptr && options->hasNotif) return NIXL_ERR_NOT_SUPPORTED;
    return guarded(NIXL_ERR_INVALID_PARAM, [&] {
      handle = new Request(node_, operation, local, remote);
      return NIXL_SUCCESS;
    });
  }
  nixl_status_t postXfer(const nixl_xfer_op_t& /*operation*/, const nixl_meta_dlist_t& /*local*/,
                         const nixl_meta_dlist_t& /*remote*/, const std::string& /*agent*/,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* /*options*/) const override {
    return guarded(NIXL_ERR_BACKEND, [&] {
      auto& request = dynamic_cast<Request&>(*handle);
      request.post();
      return request.check();
    });
  }
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override {
    return guarded(NIXL_ERR_BACKEND, [&] { return dynamic_cast<Request&>(*handle).check(); });
  }
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override {
    delete handle;
    return NIXL_SUCCESS;
  }

 private:
  Node node_;
};

nixlBackendEngine* create_engine(const nixlBackendInitParams* parameters) noexcept {
  try {
    return new Engine(parameters);
  } catch (const std::exception& error) {
    tell(error.what());
    return nullptr;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) nixlBackendPlugin* nixl_plugin_init() {
  static nixlBackendPlugin plugin{
      NIXL_PLUGIN_API_VERSION,
      [](const nixlBackendInitParams* parameters) { return create_engine(parameters); },
      [](nixlBackendEngine* engine) { delete engine; },
      [] { return kName; },
      [] { return polypath_version(); },
      [] { return nixl_b_params_t{}; },
      [] { return nixl_mem_list_t{DRAM_SEG, VRAM_SEG}; }};
  return &plugin;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
