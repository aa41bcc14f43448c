// The few functions of the CUDA driver that these headers call, found at run time. For the other
// headers of this folder.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "polypath/uniconn/types.hpp"

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;

namespace polypath::uniconn::detail {

using DevicePointer = unsigned long long;

inline DevicePointer device(const void* address) {
  return reinterpret_cast<DevicePointer>(address);
}

/// The driver of one engine. Functions return a CUresult; call() makes it an exception.
class Cuda {
 public:
  static constexpr int kNotReady = 600;

  explicit Cuda(polypath_context* engine) {
    const auto find = [engine](auto& function, const char* name) {
      void* const symbol = polypath_driver_function(engine, name);
      if (symbol == nullptr)
        throw error(POLYPATH_NOT_SUPPORTED,
                    (std::string("the CUDA driver has no ") + name).c_str());
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    find(get_error_name, "cuGetErrorName");
    find(device_count, "cuDeviceGetCount");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(set_current, "cuCtxSetCurrent");
    find(alloc, "cuMemAlloc_v2");
    find(free, "cuMemFree_v2");
    find(host_alloc, "cuMemHostAlloc");
    find(host_free, "cuMemFreeHost");
    find(attribute, "cuPointerGetAttribute");
    find(copy, "cuMemcpyAsync");
    find(set, "cuMemsetD8Async");
    find(stream_create, "cuStreamCreate");
    find(stream_destroy, "cuStreamDestroy_v2");
    find(synchronize, "cuStreamSynchronize");
    find(query, "cuStreamQuery");
    find(wait_event, "cuStreamWaitEvent");
    find(event_create, "cuEventCreate");
    find(event_destroy, "cuEventDestroy_v2");
    find(event_record, "cuEventRecord");
    find(host_function, "cuLaunchHostFunc");
    find(launch, "cuLaunchKernel");
    find(launch_together, "cuLaunchCooperativeKernel");
  }

  /// Throws POLYPATH_DRIVER_ERROR, with the name of the error and `what` failed.
  void check(int result, const char* what) const {
    if (result == 0) return;
    const char* name = nullptr;
    get_error_name(result, &name);
    throw error(
        POLYPATH_DRIVER_ERROR,
        (std::string(what) + ": " + (name == nullptr ? std::to_string(result) : name)).c_str());
  }

  using Config = unsigned int;
  int (*get_error_name)(int, const char**) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*retain)(CUctx_st**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*set_current)(CUctx_st*) = nullptr;
  int (*alloc)(DevicePointer*, std::size_t) = nullptr;
  int (*free)(DevicePointer) = nullptr;
  int (*host_alloc)(void**, std::size_t, unsigned) = nullptr;
  int (*host_free)(void*) = nullptr;
  int (*attribute)(void*, int, DevicePointer) = nullptr;
  int (*copy)(DevicePointer, DevicePointer, std::size_t, Stream) = nullptr;
  int (*set)(DevicePointer, unsigned char, std::size_t, Stream) = nullptr;
  int (*stream_create)(Stream*, unsigned) = nullptr;
  int (*stream_destroy)(Stream) = nullptr;
  int (*synchronize)(Stream) = nullptr;
  int (*query)(Stream) = nullptr;
  int (*wait_event)(Stream, CUevent_st*, unsigned) = nullptr;
  int (*event_create)(CUevent_st**, unsigned) = nullptr;
  int (*event_destroy)(CUevent_st*) = nullptr;
  int (*event_record)(CUevent_st*, Stream) = nullptr;
  int (*host_function)(Stream, void (*)(void*), void*) = nullptr;
  int (*launch)(CUfunc_st*, Config, Config, Config, Config, Config, Config, unsigned, Stream,
                void**, void**) = nullptr;
  int (*launch_together)(CUfunc_st*, Config, Config, Config, Config, Config, Config, unsigned,
                         Stream, void**) = nullptr;
};

/// The primary context of a GPU, kept, and current on the thread that made this.
class Device {
 public:
  /// POLYPATH_INVALID_ARGUMENT: no such GPU.
  Device(const Cuda& cuda, int number) : cuda_(cuda), number_(number) {
    int count = 0;
    cuda.check(cuda.device_count(&count), "cuDeviceGetCount");
    if (number < 0 || number >= count)
      throw error(
          POLYPATH_INVALID_ARGUMENT,
          ("SetDevice: there is no GPU " + std::to_string(number) + " of " + std::to_string(count))
              .c_str());
    cuda.check(cuda.retain(&context_, number), "cuDevicePrimaryCtxRetain");
    cuda.check(cuda.set_current(context_), "cuCtxSetCurrent");
  }
  ~Device() { cuda_.release(number_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int number() const noexcept { return number_; }
  /// On this thread.
  void make_current() const { cuda_.check(cuda_.set_current(context_), "cuCtxSetCurrent"); }

 private:
  const Cuda& cuda_;
  int number_;
  CUctx_st* context_ = nullptr;
};

/// Throws unless `address` is memory of a GPU. `what` names the argument.
inline void require_device_memory(const Cuda& cuda, const void* address, const char* what) {
  constexpr int kMemoryType = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
  constexpr unsigned kOfDevice = 2;
  unsigned type = 0;
  if (cuda.attribute(&type, kMemoryType, device(address)) != 0 || type != kOfDevice)
    throw error(POLYPATH_INVALID_ARGUMENT,
                (std::string(what) + (address == nullptr ? " is null" : " is not memory of a GPU"))
                    .c_str());
}

/// Throws unless all of a range is memory of a GPU, of one allocation or mapping. Asks the driver
/// once for ranges of the same one; for one argument, which `what` names.
class RangeCheck {
 public:
  RangeCheck(const Cuda& cuda, const char* what) : cuda_(cuda), what_(what) {}

  void require(const void* address, std::size_t bytes) {
    if (bytes == 0) return;
    const DevicePointer at = device(address);
    if (at < begin_ || at - begin_ >= bytes_) look(address);
    const std::size_t room = bytes_ - (at - begin_);
    if (bytes > room)
      throw error(POLYPATH_INVALID_ARGUMENT,
                  (std::string(what_) + ": " + std::to_string(bytes) +
                   " bytes, but the memory ends after " + std::to_string(room))
                      .c_str());
  }

 private:
  void look(const void* address) {
    constexpr int kStart = 11;  // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
    constexpr int kSize = 12;   // CU_POINTER_ATTRIBUTE_RANGE_SIZE
    require_device_memory(cuda_, address, what_);
    if (cuda_.attribute(&begin_, kStart, device(address)) == 0 && begin_ != 0 &&
        cuda_.attribute(&bytes_, kSize, device(address)) == 0)
      return;
    begin_ = device(address);  // a driver that does not say how far it goes
    bytes_ = std::numeric_limits<std::size_t>::max() - begin_;
  }

  const Cuda& cuda_;
  const char* what_;
  DevicePointer begin_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace polypath::uniconn::detail
