// A module of kernels, loaded into a GPU's context.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Shared by all users of this process that ask for the same one, and kept for as long as its
/// context: loading and unloading wait for the kernels of the GPU, which may wait for this process
/// (docs/adr/0031-begin-beside-kernels.md, words: ok). Thread-safe.
class KernelModule {
 public:
  /// That of `image` (a static array, for cuModuleLoadData) in `context`, which is current; loaded
  /// the first time. `driver` and the context outlive it. Throws NotSupported for a driver that
  /// cannot load modules, for a GPU that the image has no code for and for a build without a CUDA
  /// compiler; DriverError. To be made before kernels run that wait for other ranks.
  static std::shared_ptr<const KernelModule> load(const CudaDriver& driver, CUcontext context,
                                                  std::span<const unsigned char> image);
  ~KernelModule();
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;

  /// The kernel of that name, loaded. Throws DriverError.
  [[nodiscard]] CUfunction function(const char* name) const;

 private:
  KernelModule(const CudaDriver& driver, CUcontext context, std::span<const unsigned char> image);

  const CudaDriver& driver_;
  CUcontext context_;
  CUmodule module_ = nullptr;
};

/// What is made once a context, and kept for as long as the context: objects of type T. `Key` says
/// which of them. One that is made anew in the place of a context has another number, so that what
/// went with the old one is not found. A driver that numbers no contexts (before CUDA 12): kept for
/// as long as it has an owner.
template <typename T, typename Key>
class OncePerContext {
 public:
  /// The one of this key, which `make()` gives the first time, under a lock. Any thread.
  template <typename Make>
  std::shared_ptr<const T> get(const CudaDriver& driver, CUcontext context, Key key, Make&& make) {
    unsigned long long number = 0;
    const bool is_numbered =
        driver.ctx_get_id != nullptr && driver.ctx_get_id(context, &number) == CUDA_SUCCESS;
    const std::lock_guard lock(mutex_);
    // A table may come to where another one was that loads otherwise (a decorated driver).
    const auto loads = reinterpret_cast<std::uintptr_t>(driver.module_load_data);
    std::weak_ptr<const T>& known = known_[{&driver, loads, context, number, key}];
    if (auto object = known.lock()) return object;
    std::shared_ptr<const T> object = make();
    known = object;
    if (is_numbered) kept_.push_back(object);
    return object;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<const CudaDriver*, std::uintptr_t, CUcontext, unsigned long long, Key>,
           std::weak_ptr<const T>>
      known_;
  std::vector<std::shared_ptr<const T>> kept_;
};

}  // namespace polypath
