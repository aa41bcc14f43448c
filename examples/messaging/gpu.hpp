// A GPU of an example: bytes to and from it, and a kernel on it, by the driver that polypath uses.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "polypath/polypath.hpp"
#include "polypath/uniconn/cuda.hpp"

struct CUmod_st;

namespace messaging_example {

/// For one thread; calls make its context current. Throws polypath::error.
class Gpu {
 public:
  Gpu(polypath_context* context, int number) : cuda_(context), device_(cuda_, number) {
    find(context, create_, "cuStreamCreate");
    find(context, destroy_, "cuStreamDestroy_v2");
    find(context, load_, "cuModuleLoadData");
    find(context, function_, "cuModuleGetFunction");
    constexpr unsigned kNonBlocking = 1;
    cuda_.check(create_(&stream_, kNonBlocking), "cuStreamCreate");
  }
  ~Gpu() {
    device_.make_current();
    cuda_.synchronize(stream_);
    for (void* const each : memory_) cuda_.free(polypath::uniconn::detail::device(each));
    destroy_(stream_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Memory filled with zeros, freed at the end.
  template <typename T>
  T* alloc(std::size_t count) {
    device_.make_current();
    unsigned long long memory = 0;
    cuda_.check(cuda_.alloc(&memory, count * sizeof(T)), "cuMemAlloc");
    memory_.push_back(reinterpret_cast<void*>(memory));
    cuda_.check(cuda_.set(memory, 0, count * sizeof(T), stream_), "cuMemsetD8Async");
    synchronize();
    return static_cast<T*>(memory_.back());
  }
  template <typename T>
  void write(T* to, const T* from, std::size_t count) {
    copy(to, from, count * sizeof(T));
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> values(count);
    copy(values.data(), from, count * sizeof(T));
    return values;
  }
  /// All its blocks run at once. `args`: the kernel's one parameter.
  template <typename Args>
  void launch(std::span<const unsigned char> image, const char* name, unsigned blocks,
              unsigned threads, Args args) {
    device_.make_current();
    CUmod_st* module = nullptr;  // stays until the process ends
    CUfunc_st* kernel = nullptr;
    cuda_.check(load_(&module, image.data()), "cuModuleLoadData");
    cuda_.check(function_(&kernel, module, name), "cuModuleGetFunction");
    void* all[] = {&args};
    cuda_.check(cuda_.launch_together(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_, all),
                "cuLaunchCooperativeKernel");
  }
  void synchronize() {
    device_.make_current();
    cuda_.check(cuda_.synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  template <typename Function>
  static void find(polypath_context* context, Function& function, const char* name) {
    void* const address = polypath_driver_function(context, name);
    if (address == nullptr)
      throw polypath::error(POLYPATH_NOT_SUPPORTED,
                            (std::string("the driver has no ") + name).c_str());
    function = reinterpret_cast<Function>(address);
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    using polypath::uniconn::detail::device;
    device_.make_current();
    cuda_.check(cuda_.copy(device(to), device(from), bytes, stream_), "cuMemcpyAsync");
    synchronize();
  }

  polypath::uniconn::detail::Cuda cuda_;
  polypath::uniconn::detail::Device device_;
  polypath::uniconn::Stream stream_ = nullptr;
  std::vector<void*> memory_;
  int (*create_)(polypath::uniconn::Stream*, unsigned) = nullptr;
  int (*destroy_)(polypath::uniconn::Stream) = nullptr;
  int (*load_)(CUmod_st**, const void*) = nullptr;
  int (*function_)(CUfunc_st**, CUmod_st*, const char*) = nullptr;
};

}  // namespace messaging_example
