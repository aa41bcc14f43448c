// polypath in C++: thin owners and exceptions over polypath.h, header only. Units, threads and the
// meaning of each call are documented there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "polypath/polypath.h"

namespace polypath {

/// What every call of this header throws: the message of the library, and its status.
class error : public std::runtime_error {
 public:
  error(polypath_status status, const char* message)
      : std::runtime_error(message), status_(status) {}
  [[nodiscard]] polypath_status status() const noexcept { return status_; }

 private:
  polypath_status status_;
};

namespace detail {

inline void check(polypath_status status) {
  if (status != POLYPATH_SUCCESS) throw error(status, polypath_last_error());
}

/// Runs a call that returns a string by its last argument, and owns the string.
template <typename Call>
std::string json_of(Call&& call) {
  char* text = nullptr;
  check(call(&text));
  const std::unique_ptr<char, void (*)(char*)> owner(text, &polypath_free_string);
  return text;
}

}  // namespace detail

/// A transfer without addresses: from and to "gpu0", "host0".
struct request {
  std::string src;
  std::string dst;
  std::size_t bytes = 0;
};

/// Owns a polypath_context. Movable, not copyable; usable from any number of threads at once. All
/// transfers must have completed when it is destroyed.
class context {
 public:
  using settings = std::initializer_list<std::pair<const char*, const char*>>;

  /// Settings as {"routes", "direct,gpu"}; they override the environment.
  explicit context(settings overrides = {}) {
    std::vector<polypath_setting> list;
    for (const auto& [name, value] : overrides) list.push_back({name, value});
    polypath_context* handle = nullptr;
    detail::check(polypath_context_create(list.data(), list.size(), &handle));
    handle_.reset(handle);
  }

  /// Copies `bytes` from `src` to `dst`, ordered on `stream` as cuMemcpyAsync is.
  void copy_async(void* dst, const void* src, std::size_t bytes, void* stream) {
    detail::check(polypath_copy_async(get(), dst, src, bytes, stream));
  }

  /// The contents of `src` to `dst`, which must not be shorter: POLYPATH_INVALID_ARGUMENT else.
  template <typename T>
  void copy_async(std::span<T> dst, std::span<const T> src, void* stream) {
    if (dst.size() < src.size()) throw error(POLYPATH_INVALID_ARGUMENT, "dst is shorter than src");
    copy_async(dst.data(), src.data(), src.size_bytes(), stream);
  }

  /// Transfers that are planned together, so that their routes do not contend.
  void group_copy_async(std::span<const polypath_transfer> transfers) {
    detail::check(polypath_group_copy_async(get(), transfers.data(), transfers.size()));
  }

  /// Copies blocks, which have no order among each other: bytes[i] from src[i] to dst[i].
  void copy_batch_async(std::span<void* const> dst, std::span<const void* const> src,
                        std::span<const std::size_t> bytes, void* stream) {
    if (dst.size() != src.size() || dst.size() != bytes.size())
      throw error(POLYPATH_INVALID_ARGUMENT, "dst, src and bytes are not equally long");
    detail::check(
        polypath_copy_batch_async(get(), dst.size(), dst.data(), src.data(), bytes.data(), stream));
  }

  /// Copies `bytes` of an open file, from byte `offset` on, to `dst`, memory of a GPU, ordered on
  /// `stream`; returns when the file has been read. Status POLYPATH_FILE_ERROR: it could not be.
  void read_async(int file, std::uint64_t offset, void* dst, std::size_t bytes, void* stream) {
    detail::check(polypath_read_async(get(), file, offset, dst, bytes, stream));
  }

  /// Makes ready, and waits for, all that batches between these memories can use.
  void prepare_batches(std::span<const request> requests) {
    const auto list = views(requests);
    detail::check(polypath_prepare_batches(get(), list.data(), list.size()));
  }

  /// Copies the same bytes to dst[i] on streams[i]: one operation on all streams.
  void spread_async(std::span<void* const> dst, const void* src, std::size_t bytes,
                    std::span<void* const> streams) {
    if (dst.size() != streams.size())
      throw error(POLYPATH_INVALID_ARGUMENT, "dst and streams are not equally long");
    detail::check(polypath_spread_async(get(), dst.size(), dst.data(), src, bytes, streams.data()));
  }

  /// Makes ready, and waits for, all that spreads from `src` to these GPUs can use.
  void prepare_spread(const std::string& src, std::span<const int> gpus) {
    detail::check(polypath_prepare_spread(get(), src.c_str(), gpus.data(), gpus.size()));
  }

  /// The plan of a spread, as JSON, without running it.
  [[nodiscard]] std::string plan_spread(const std::string& src, std::span<const int> gpus,
                                        std::size_t bytes) {
    return detail::json_of([&](char** json) {
      return polypath_plan_spread(get(), src.c_str(), gpus.data(), gpus.size(), bytes, json);
    });
  }

  /// Makes ready, and waits for, all that such transfers can use.
  void prepare(std::span<const request> requests) {
    const auto list = views(requests);
    detail::check(polypath_prepare(get(), list.data(), list.size()));
  }

  /// GPUs that transfers stage on may be given access to these mappings of cuMemMap.
  void share_mapping(const void* address, std::size_t bytes) {
    detail::check(polypath_share_mapping(get(), address, bytes));
  }

  /// Before they are unmapped, or their access is set anew.
  void unshare_mapping(const void* address, std::size_t bytes) {
    detail::check(polypath_unshare_mapping(get(), address, bytes));
  }

  /// The plan, as JSON, without running it.
  [[nodiscard]] std::string plan(std::span<const request> requests) {
    const auto list = views(requests);
    return detail::json_of(
        [&](char** json) { return polypath_plan(get(), list.data(), list.size(), json); });
  }

  /// The capacity graph, as JSON.
  [[nodiscard]] std::string topology() {
    return detail::json_of([&](char** json) { return polypath_topology(get(), json); });
  }

  /// What was done since the context was made, as JSON.
  [[nodiscard]] std::string counters() {
    return detail::json_of([&](char** json) { return polypath_counters(get(), json); });
  }

  /// The C handle; it stays this object's.
  [[nodiscard]] polypath_context* get() const noexcept { return handle_.get(); }

 private:
  static std::vector<polypath_transfer_request> views(std::span<const request> requests) {
    std::vector<polypath_transfer_request> list;
    for (const request& entry : requests)
      list.push_back({entry.src.c_str(), entry.dst.c_str(), entry.bytes});
    return list;
  }

  struct destroyer {
    void operator()(polypath_context* handle) const noexcept { polypath_context_destroy(handle); }
  };
  std::unique_ptr<polypath_context, destroyer> handle_;
};

}  // namespace polypath
