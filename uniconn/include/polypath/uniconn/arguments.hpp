// Arguments of host calls: what is wrong with them, and the parts of buffers that they mean.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// Throw POLYPATH_INVALID_ARGUMENT, which names the argument.
struct Arguments {
  static void require(const void* address, const char* what) {
    if (address == nullptr)
      throw error(POLYPATH_INVALID_ARGUMENT, (std::string(what) + " is null").c_str());
  }
  static void require_apart(const void* send, const void* recv, const char* what) {
    if (send == recv && send != nullptr)
      throw error(POLYPATH_INVALID_ARGUMENT,
                  (std::string(what) + ": send is recv, and it is not in place").c_str());
  }
  template <typename T>
  static std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw error(POLYPATH_INVALID_ARGUMENT, "count is too large");
    return count * sizeof(T);
  }
  /// A part for each rank.
  template <typename T>
  static void require_parts(std::size_t count, int ranks) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T) / static_cast<unsigned>(ranks))
      throw error(POLYPATH_INVALID_ARGUMENT, "count is too large");
  }
  template <typename T>
  static T* part(T* buffer, int rank, std::size_t count) {
    return buffer == nullptr ? nullptr : buffer + static_cast<std::size_t>(rank) * count;
  }
  template <typename T>
  static PostArgs sends(const T* from, const T* to, std::size_t count) {
    const std::size_t bytes = bytes_of<T>(count);
    if (bytes > 0) require(from, "send");
    return {from, const_cast<T*>(to), bytes, nullptr, 0, 0, true};
  }
  template <typename T>
  static AcknowledgeArgs receives(T* to, std::size_t count) {
    const std::size_t bytes = bytes_of<T>(count);
    if (bytes > 0) require(to, "recv");
    return {to, bytes, nullptr, 0, 0, true};
  }
  template <typename T>
  static AcknowledgeArgs receives(T* to, const std::size_t* counts, const std::size_t* displs,
                                  int from) {
    const auto at = static_cast<std::size_t>(from);
    return receives(to == nullptr ? to : to + displs[at], counts[at]);
  }
};

}  // namespace polypath::uniconn::detail
