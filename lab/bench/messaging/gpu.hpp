// A GPU, and what a benchmark does with it, by the driver that the context uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "polypath/device/wait_context.hpp"
#include "polypath/uniconn/cuda.hpp"

struct CUmod_st;

namespace messaging_bench {

using polypath::uniconn::Stream;
using polypath::uniconn::detail::Cuda;

/// Calls make the GPU's context current. For one thread.
class Gpu {
 public:
  /// `engine` outlives it. Throws polypath::error.
  Gpu(polypath_context* engine, int number, const polypath::device::wait_context& wait_ctx);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] unsigned processors() const noexcept { return processors_; }
  /// What kernels wait with.
  [[nodiscard]] const polypath::device::wait_context& wait_ctx() const noexcept {
    return wait_ctx_;
  }
  [[nodiscard]] Stream stream(unsigned number = 0) const { return streams_[number]; }

  /// The kernel of `image` (a static array of polypath_embed_kernel). Null: the build has none.
  [[nodiscard]] CUfunc_st* kernel(std::span<const unsigned char> image, const char* name);
  /// `args`: the kernel's one parameter. Blocks wait for each other: they all run at once.
  template <typename Args>
  void launch(CUfunc_st* kernel, unsigned blocks, unsigned threads, Args args,
              unsigned stream = 0) {
    static_assert(std::is_trivially_copyable_v<Args>);
    void* all[] = {&args};
    launch_all(kernel, blocks, threads, all, stream);
  }

  void* alloc(std::size_t bytes);  ///< of zeros; until the end
  void set(void* to, unsigned char value, std::size_t bytes);
  /// Both wait for what is on the streams.
  void write(void* to, const void* from, std::size_t bytes);
  void read(void* to, const void* from, std::size_t bytes);
  template <typename T>
  [[nodiscard]] std::vector<T> read(const void* from, std::size_t count) {
    std::vector<T> values(count);
    read(values.data(), from, count * sizeof(T));
    return values;
  }
  /// While kernels run, from any thread.
  void peek(void* to, const void* from, std::size_t bytes);
  void synchronize();
  /// Between the begin and the end of what `issue` puts on stream 0, by the GPU's clock.
  double time_us(const std::function<void()>& issue);
  /// Frees all that alloc() gave since.
  void free_all();

 private:
  void launch_all(CUfunc_st* kernel, unsigned blocks, unsigned threads, void** args,
                  unsigned stream);
  void make_current() const;

  polypath_context* engine_;
  Cuda cuda_;
  polypath::uniconn::detail::Device device_;
  int number_;
  unsigned processors_ = 0;
  polypath::device::wait_context wait_ctx_;
  Stream streams_[4] = {};
  Stream peeks_ = nullptr;
  CUevent_st* begin_ = nullptr;
  CUevent_st* end_ = nullptr;
  std::vector<void*> memory_;
  std::vector<std::pair<const unsigned char*, CUmod_st*>> modules_;
  int (*stream_create_)(Stream*, unsigned) = nullptr;
  int (*stream_destroy_)(Stream) = nullptr;
  int (*elapsed_)(float*, CUevent_st*, CUevent_st*) = nullptr;
  int (*load_)(CUmod_st**, const void*) = nullptr;
  int (*function_)(CUfunc_st**, CUmod_st*, const char*) = nullptr;
};

}  // namespace messaging_bench
