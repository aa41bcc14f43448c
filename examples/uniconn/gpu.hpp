// A rank's GPU: its stream, events, bytes and kernels, by the driver that UNICONN uses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "polypath/uniconn.hpp"

struct CUmod_st;

namespace uniconn_example {

namespace uc = polypath::uniconn;

/// As cuda_runtime.h's dim3.
struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// The GPU of the current context; for one thread.
class Gpu {
 public:
  Gpu() : engine_(uc::detail::engine()), cuda(engine_.get()) {
    const auto find = [this](auto& function, const char* name) {
      void* const symbol = polypath_driver_function(engine_.get(), name);
      if (symbol == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    find(stream_create_, "cuStreamCreate");
    find(stream_destroy_, "cuStreamDestroy_v2");
    find(elapsed_, "cuEventElapsedTime");
    find(load_, "cuModuleLoadData");
    find(function_, "cuModuleGetFunction");
    find(device_, "cuCtxGetDevice");
    find(attribute_, "cuDeviceGetAttribute");
    find(occupancy_, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    const auto find_of_node = [this](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          polypath_driver_function(engine_.get(), name));
    };
    find_of_node(issuing_, "polypath_sim_set_issuer");
    find_of_node(turn_, "polypath_sim_wait_turn");
    constexpr unsigned kNonBlocking = 1;
    cuda.check(stream_create_(&stream, kNonBlocking), "cuStreamCreate");
    for (auto* const event : {&begin_, &end_}) cuda.check(cuda.event_create(event, 0), "event");
  }
  ~Gpu() {
    for (auto* const event : {begin_, end_}) cuda.event_destroy(event);
    stream_destroy_(stream);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void synchronize() const { cuda.check(cuda.synchronize(stream), "cuStreamSynchronize"); }
  /// Issues `turns` iterations, and times them; CPU time in ns is returned. On a simulated node
  /// ranks that are threads issue in turns by virtual time, so that what each plans next to does
  /// not depend on how busy this machine is (polypath_sim.h). Collective: `meet` returns when all
  /// ranks have come.
  template <typename Meet, typename Iterate>
  double issue(int rank, int turns, const Meet& meet, const Iterate& iterate) const {
    const InTurns in_turns(issuing_, rank + 1);
    meet();
    in_turn();
    cuda.check(cuda.event_record(begin_, stream), "cuEventRecord");
    const auto began = std::chrono::steady_clock::now();
    for (int turn = 0; turn < turns; ++turn) {
      in_turn();
      iterate();
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - began;
    cuda.check(cuda.event_record(end_, stream), "cuEventRecord");
    return spent.count();
  }
  /// The time of what issue() issued last, by the GPU's clock; waits for the stream.
  [[nodiscard]] double elapsed_us() const {
    synchronize();
    float ms = 0;
    cuda.check(elapsed_(&ms, begin_, end_), "cuEventElapsedTime");
    return ms * 1000.0;
  }
  /// Both wait for the stream.
  template <typename T>
  void write(void* to, const std::vector<T>& values) const {
    write(to, values.data(), values.size() * sizeof(T));
  }
  void write(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    cuda.check(cuda.copy(uc::detail::device(to), uc::detail::device(from), bytes, stream), "write");
    synchronize();
  }
  void read(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    cuda.check(cuda.copy(uc::detail::device(to), uc::detail::device(from), bytes, stream), "read");
    synchronize();
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read(const void* from, std::size_t count) const {
    std::vector<T> values(count);
    read(values.data(), from, count * sizeof(T));
    return values;
  }
  void zero(void* memory, std::size_t bytes) const {
    cuda.check(cuda.set(uc::detail::device(memory), 0, bytes, stream), "cuMemsetD8Async");
  }
  void poison(void* memory, std::size_t bytes) const {
    cuda.check(cuda.set(uc::detail::device(memory), 0x5A, bytes, stream), "cuMemsetD8Async");
    synchronize();
  }

  /// Null where the image is empty (a build without nvcc), or the driver does not run it: the
  /// simulated one runs polypath's own kernels alone.
  [[nodiscard]] CUmod_st* load(std::span<const unsigned char> image, const char* kernel) const {
    CUmod_st* module = nullptr;  // stays until the process ends
    if (image.empty() || load_(&module, image.data()) != 0) return nullptr;
    CUfunc_st* function = nullptr;
    return function_(&function, module, kernel) == 0 ? module : nullptr;
  }
  [[nodiscard]] CUfunc_st* kernel(CUmod_st* module, const char* name) const {
    CUfunc_st* function = nullptr;
    cuda.check(function_(&function, module, name), "cuModuleGetFunction");
    return function;
  }
  /// So many blocks of it run at once; at least one.
  [[nodiscard]] std::uint32_t at_once(CUfunc_st* kernel, unsigned threads,
                                      std::size_t shared_bytes) const {
    constexpr int kMultiprocessors = 16;
    int device = 0;
    int multiprocessors = 0;
    int each = 0;
    cuda.check(device_(&device), "cuCtxGetDevice");
    cuda.check(attribute_(&multiprocessors, kMultiprocessors, device), "cuDeviceGetAttribute");
    cuda.check(occupancy_(&each, kernel, static_cast<int>(threads), shared_bytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (each == 0) throw std::runtime_error("a block of the kernel takes more than a GPU has");
    return static_cast<std::uint32_t>(multiprocessors * each);
  }

 private:
  struct InTurns {
    InTurns(void (*issuing)(int), int number) : issuing_(issuing) { tell(number); }
    ~InTurns() { tell(0); }
    InTurns(const InTurns&) = delete;
    InTurns& operator=(const InTurns&) = delete;

   private:
    void tell(int number) const {
      if (issuing_ != nullptr) issuing_(number);
    }
    void (*issuing_)(int);
  };
  void in_turn() const {
    if (turn_ != nullptr) turn_();
  }

  std::shared_ptr<polypath_context> engine_;
  int (*stream_create_)(uc::Stream*, unsigned) = nullptr;
  int (*stream_destroy_)(uc::Stream) = nullptr;
  int (*elapsed_)(float*, CUevent_st*, CUevent_st*) = nullptr;
  void (*issuing_)(int) = nullptr;
  void (*turn_)() = nullptr;
  int (*load_)(CUmod_st**, const void*) = nullptr;
  int (*function_)(CUfunc_st**, CUmod_st*, const char*) = nullptr;
  int (*device_)(int*) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*occupancy_)(int*, CUfunc_st*, int, std::size_t) = nullptr;
  CUevent_st* begin_ = nullptr;
  CUevent_st* end_ = nullptr;

 public:
  uc::detail::Cuda cuda;
  uc::Stream stream = nullptr;
};

/// The same for the same seed on every rank; after `bytes` it is 0.
inline std::vector<std::uint64_t> contents(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::uint64_t> words((bytes + 7) / 8);
  std::mt19937_64 random(seed);
  for (std::uint64_t& word : words) word = random();
  if (bytes % 8 != 0) words.back() &= (std::uint64_t{1} << bytes % 8 * 8) - 1;
  return words;
}

}  // namespace uniconn_example
