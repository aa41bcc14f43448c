#include "gpu.hpp"

#include <string>

namespace messaging_bench {

using polypath::uniconn::detail::device;

Gpu::Gpu(polypath_context* engine, int number, const polypath::device::wait_context& wait_ctx)
    : engine_(engine), cuda_(engine), device_(cuda_, number), number_(number), wait_ctx_(wait_ctx) {
  const auto find = [engine](auto& function, const char* name) {
    void* const address = polypath_driver_function(engine, name);
    if (address == nullptr)
      throw polypath::error(POLYPATH_NOT_SUPPORTED,
                            (std::string("the driver has no ") + name).c_str());
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(stream_create_, "cuStreamCreate");
  find(stream_destroy_, "cuStreamDestroy_v2");
  find(elapsed_, "cuEventElapsedTime");
  find(load_, "cuModuleLoadData");
  find(function_, "cuModuleGetFunction");
  int (*attribute)(int*, int, int) = nullptr;
  find(attribute, "cuDeviceGetAttribute");
  constexpr int kMultiprocessorCount = 16;
  int processors = 0;
  cuda_.check(attribute(&processors, kMultiprocessorCount, number), "cuDeviceGetAttribute");
  processors_ = static_cast<unsigned>(processors);
  constexpr unsigned kNonBlocking = 1;
  for (Stream& stream : streams_)
    cuda_.check(stream_create_(&stream, kNonBlocking), "cuStreamCreate");
  cuda_.check(stream_create_(&peeks_, kNonBlocking), "cuStreamCreate");
  for (auto* const event : {&begin_, &end_}) cuda_.check(cuda_.event_create(event, 0), "event");
}

Gpu::~Gpu() {
  device_.make_current();
  for (Stream stream : streams_) {
    cuda_.synchronize(stream);
    stream_destroy_(stream);
  }
  stream_destroy_(peeks_);
  for (auto* const event : {begin_, end_}) cuda_.event_destroy(event);
  for (void* const memory : memory_) cuda_.free(device(memory));
}

void Gpu::make_current() const { device_.make_current(); }

CUfunc_st* Gpu::kernel(std::span<const unsigned char> image, const char* name) {
  make_current();
  if (image.empty()) return nullptr;
  CUmod_st* module = nullptr;  // stays until the process ends
  for (const auto& [bytes, loaded] : modules_)
    if (bytes == image.data()) module = loaded;
  if (module == nullptr) {
    cuda_.check(load_(&module, image.data()), "cuModuleLoadData");
    modules_.emplace_back(image.data(), module);
  }
  CUfunc_st* function = nullptr;
  cuda_.check(function_(&function, module, name), name);
  return function;
}

void Gpu::launch_all(CUfunc_st* kernel, unsigned blocks, unsigned threads, void** args,
                     unsigned stream) {
  make_current();
  cuda_.check(cuda_.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, streams_[stream], args, nullptr),
              "cuLaunchKernel");
}

void* Gpu::alloc(std::size_t bytes) {
  make_current();
  unsigned long long memory = 0;
  cuda_.check(cuda_.alloc(&memory, bytes), "cuMemAlloc");
  memory_.push_back(reinterpret_cast<void*>(memory));
  set(memory_.back(), 0, bytes);
  return memory_.back();
}

void Gpu::set(void* to, unsigned char value, std::size_t bytes) {
  make_current();
  cuda_.check(cuda_.set(device(to), value, bytes, streams_[0]), "cuMemsetD8Async");
  synchronize();
}

void Gpu::write(void* to, const void* from, std::size_t bytes) {
  make_current();
  cuda_.check(cuda_.copy(device(to), device(from), bytes, streams_[0]), "write");
  synchronize();
}

void Gpu::read(void* to, const void* from, std::size_t bytes) {
  synchronize();
  cuda_.check(cuda_.copy(device(to), device(from), bytes, streams_[0]), "read");
  synchronize();
}

void Gpu::peek(void* to, const void* from, std::size_t bytes) {
  make_current();
  cuda_.check(cuda_.copy(device(to), device(from), bytes, peeks_), "peek");
  cuda_.check(cuda_.synchronize(peeks_), "peek");
}

void Gpu::synchronize() {
  make_current();
  for (Stream stream : streams_) cuda_.check(cuda_.synchronize(stream), "cuStreamSynchronize");
}

double Gpu::time_us(const std::function<void()>& issue) {
  synchronize();
  cuda_.check(cuda_.event_record(begin_, streams_[0]), "cuEventRecord");
  issue();
  make_current();
  cuda_.check(cuda_.event_record(end_, streams_[0]), "cuEventRecord");
  synchronize();
  float ms = 0;
  cuda_.check(elapsed_(&ms, begin_, end_), "cuEventElapsedTime");
  return ms * 1000.0;
}

void Gpu::free_all() {
  synchronize();
  for (void* const memory : memory_) cuda_.check(cuda_.free(device(memory)), "cuMemFree");
  memory_.clear();
}

}  // namespace messaging_bench
