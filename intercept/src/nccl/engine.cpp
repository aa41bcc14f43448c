#include "nccl/engine.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <string>

#include "nccl/cuda.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {
namespace {

struct Made {
  Engine engine{};
  bool is_tried = false;
  bool is_there = false;
  std::string why;
};

void* open_library() noexcept {
  Dl_info info;
  char path[PATH_MAX];
  // It may be named as NCCL by a link.
  if (dladdr(reinterpret_cast<const void*>(&open_library), &info) == 0 ||
      realpath(info.dli_fname, path) == nullptr)
    return nullptr;
  const std::string own(path);
  const std::string folder = own.substr(0, own.rfind('/') + 1);
  for (const char* const name : {"libpolypath.so.0", "libpolypath.so"})
    if (void* const library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL))
      return library;
  return nullptr;
}

void make(Made& made) noexcept {
  void* const library = open_library();
  if (library == nullptr) {
    const char* const why = dlerror();
    made.why = why != nullptr ? why : "there is no libpolypath beside it";
    return;
  }
  Engine& its = made.engine;
  bool is_whole = true;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(real_dlsym(library, name));
    is_whole = is_whole && function != nullptr;
  };
  find(its.context_create, "polypath_context_create");
  find(its.last_error, "polypath_last_error");
  find(its.load_kernels, "polypath_load_kernels");
  find(its.comm_create, "polypath_comm_create");
  find(its.comm_prepare, "polypath_comm_prepare");
  find(its.comm_retire, "polypath_comm_release_sms");
  find(its.comm_destroy, "polypath_comm_destroy");
  find(its.comm_abort, "polypath_comm_abort");
  find(its.comm_check, "polypath_comm_check");
  find(its.comm_gpu, "polypath_comm_gpu");
  find(its.allreduce, "polypath_all_reduce");
  find(its.reduce_scatter, "polypath_reduce_scatter");
  find(its.reduce, "polypath_reduce");
  find(its.all_gather, "polypath_all_gather");
  find(its.broadcast, "polypath_broadcast");
  find(its.all_to_all, "polypath_all_to_all");
  find(its.backend_rows, "polypath_backend_entries");
  if (!is_whole) {
    made.why = "the libpolypath beside it is of another version";
    return;
  }
  const Cuda* const driver = cuda();
  if (driver == nullptr) {
    made.why = "there is no CUDA driver";
    return;
  }
  const RelaxedCapture relaxed(*driver);
  made.is_there = its.context_create(nullptr, 0, &its.context) == POLYPATH_SUCCESS;
  if (!made.is_there) made.why = its.last_error();
}

}  // namespace

const Engine* engine(const char** why) noexcept {
  static constinit std::atomic<pid_t> owner{0};
  static constinit std::mutex mutex;
  static auto& made = *new Made;
  pid_t nobody = 0;
  owner.compare_exchange_strong(nobody, getpid());
  // A child may have been forked while a thread of its parent had the lock.
  const bool is_child = owner.load() != getpid();
  if (!is_child) {
    const std::lock_guard lock(mutex);
    if (!made.is_tried) make(made);
    made.is_tried = true;
  }
  if (why != nullptr)
    *why = is_child ? "the process is a child of one that has polypath" : made.why.c_str();
  return !is_child && made.is_there ? &made.engine : nullptr;
}

}  // namespace polypath::nccl
