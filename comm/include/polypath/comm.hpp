// Communicators of polypath in C++: thin owners over comm.h, header only. Units, threads, and which
// calls are collective are documented there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "polypath/comm.h"
#include "polypath/polypath.hpp"

namespace polypath {

/// Memory that all ranks allocated together, as one rank sees it. Owns nothing:
/// communicator::free(), or the end of the communicator, frees it, and it is not used any more.
class symmetric_memory {
 public:
  symmetric_memory() = default;
  explicit symmetric_memory(polypath_symmetric* handle) : handle_(handle) {}

  [[nodiscard]] std::size_t size() const noexcept { return polypath_symmetric_bytes(handle_); }
  /// Where that of `rank` is, for work of this rank's GPU.
  [[nodiscard]] void* address(int rank) const noexcept {
    return polypath_symmetric_address(handle_, rank);
  }
  [[nodiscard]] polypath_symmetric* get() const noexcept { return handle_; }

  /// The word at `offset`, a multiple of 8, with a value for it.
  [[nodiscard]] polypath_signal signal(std::size_t offset, std::uint64_t value) const noexcept {
    return {handle_, offset, value};
  }

 private:
  polypath_symmetric* handle_ = nullptr;
};

/// Owns a polypath_comm: one rank. Movable, not copyable.
class communicator {
 public:
  /// Gathers `local` of all ranks, in rank order, into `all`; throws when it cannot.
  using exchange_function =
      std::function<void(std::span<const std::byte> local, std::span<std::byte> all)>;

  explicit communicator(polypath_comm* handle) : handle_(handle) {}

  /// What the exchange throws is thrown here.
  communicator(context& on, int rank, int size, int gpu, const exchange_function& exchange,
               const polypath_comm_options& options = {}) {
    struct call {
      const exchange_function& function;
      int size;
      std::exception_ptr thrown;
    } gather{exchange, size, nullptr};
    const auto run = [](const void* local, void* all, std::size_t bytes, void* user) -> int {
      call& state = *static_cast<call*>(user);
      try {
        state.function(
            {static_cast<const std::byte*>(local), bytes},
            {static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(state.size)});
        return 0;
      } catch (...) {
        state.thrown = std::current_exception();
        return 1;
      }
    };
    polypath_comm* handle = nullptr;
    const polypath_status status =
        polypath_comm_create(on.get(), rank, size, gpu, run, &gather, &options, &handle);
    if (gather.thrown) std::rethrow_exception(gather.thrown);
    detail::check(status);
    handle_.reset(handle);
  }

  /// All ranks in this process: GPU r for rank r.
  static std::vector<communicator> all(context& on, int size,
                                       const polypath_comm_options& options = {}) {
    std::vector<polypath_comm*> handles(static_cast<std::size_t>(size));
    detail::check(polypath_comm_create_all(on.get(), nullptr, size, &options, handles.data()));
    std::vector<communicator> ranks;
    for (polypath_comm* handle : handles) ranks.emplace_back(handle);
    return ranks;
  }

  /// The ranks that torchrun started; GPU LOCAL_RANK for -1.
  static communicator from_environment(context& on, int gpu = -1,
                                       const polypath_comm_options& options = {}) {
    polypath_comm* handle = nullptr;
    detail::check(polypath_comm_create_from_environment(on.get(), gpu, &options, &handle));
    return communicator(handle);
  }

  /// `wait_context`: polypath::device::wait_context.
  template <typename wait_context>
  [[nodiscard]] wait_context wait_ctx() {
    wait_context ctx;
    detail::check(polypath_comm_wait_context(get(), &ctx, sizeof ctx));
    return ctx;
  }

  [[nodiscard]] int rank() const noexcept { return polypath_comm_rank(get()); }
  [[nodiscard]] int size() const noexcept { return polypath_comm_size(get()); }
  [[nodiscard]] int nodes() const noexcept { return polypath_comm_node_count(get()); }
  [[nodiscard]] int gpu(int of_rank) const noexcept { return polypath_comm_gpu(get(), of_rank); }

  /// No handle for a negative color.
  [[nodiscard]] communicator split(int color, int key) {
    polypath_comm* part = nullptr;
    detail::check(polypath_comm_split(get(), color, key, &part));
    return communicator(part);
  }

  [[nodiscard]] symmetric_memory alloc(std::size_t bytes) {
    polypath_symmetric* memory = nullptr;
    detail::check(polypath_comm_alloc(get(), bytes, &memory));
    return symmetric_memory(memory);
  }
  void free(symmetric_memory memory) { detail::check(polypath_comm_free(get(), memory.get())); }

  void exchange(std::span<const std::byte> local, std::span<std::byte> all) {
    if (all.size() != local.size() * static_cast<std::size_t>(size()))
      throw error(POLYPATH_INVALID_ARGUMENT, "all is not as long as those of all ranks");
    detail::check(polypath_comm_host_all_gather(get(), local.data(), all.data(), local.size()));
  }

  void put(int to, const symmetric_memory& memory, std::size_t offset, const void* src,
           std::size_t bytes, void* stream) {
    detail::check(polypath_comm_put(get(), to, memory.get(), offset, src, bytes, stream));
  }
  void put(int to, const symmetric_memory& memory, std::size_t offset, const void* src,
           std::size_t bytes, const polypath_signal& signal, void* stream) {
    detail::check(
        polypath_comm_put_signal(get(), to, memory.get(), offset, src, bytes, &signal, stream));
  }
  /// The same bytes to all ranks, from host memory that all have (POLYPATH_SPREAD_SHARED) or from
  /// rank `root`.
  void spread(const void* src, void* recv, std::size_t bytes, int root, void* stream) {
    detail::check(polypath_comm_spread(get(), src, recv, bytes, root, stream));
  }
  /// Sums rows over all ranks, adds a residual and normalises.
  void all_reduce_norm(void* input, void* output, const polypath_norm& norm, void* stream) {
    detail::check(polypath_all_reduce_norm(get(), input, output, &norm, stream));
  }
  void signal(int to, const polypath_signal& signal, void* stream) {
    detail::check(polypath_comm_signal(get(), to, &signal, stream));
  }
  void wait_signal(const polypath_signal& signal, void* stream) {
    detail::check(polypath_comm_wait_signal(get(), &signal, stream));
  }
  void barrier(void* stream) { detail::check(polypath_comm_barrier(get(), stream)); }

  /// Waits for the stream; throws as check().
  void synchronize(void* stream) const { detail::check(polypath_comm_synchronize(get(), stream)); }
  void abort(const char* reason) noexcept { polypath_comm_abort(get(), reason); }
  /// Throws with the reason once it is unusable.
  void check() const { detail::check(polypath_comm_check(get())); }

  /// The C handle; it stays this object's.
  [[nodiscard]] polypath_comm* get() const noexcept { return handle_.get(); }

 private:
  struct destroyer {
    void operator()(polypath_comm* handle) const noexcept {
      // A destructor ends what a stream still waits for.
      if (polypath_comm_destroy(handle) == POLYPATH_SUCCESS) return;
      polypath_comm_abort(handle, "a communicator was destroyed while a stream waited");
      polypath_comm_destroy(handle);
    }
  };
  std::unique_ptr<polypath_comm, destroyer> handle_;
};

}  // namespace polypath
