// Memory: what ranks communicate from and to.
#pragma once

#include <limits>

#include "polypath/uniconn/environment.hpp"

namespace polypath::uniconn {

/// Memory of this rank's GPU. All ranks allocate and free together, in the same order, as many
/// elements. What is not freed goes with the last Communicator, Coordinator or Environment.
template <BackendLibrary B = DefaultBackend>
class Memory {
 public:
  /// Null for a count of 0.
  template <typename T>
  [[nodiscard]] static T* Alloc(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw error(POLYPATH_INVALID_ARGUMENT, "Memory::Alloc: count is too large");
    typename B::World& world = detail::Current<B>::get()->attached();
    return count == 0 ? nullptr : static_cast<T*>(world.allocate(count * sizeof(T)));
  }
  /// Null is allowed. Work of all ranks that uses it must have completed.
  template <typename T>
  static void Free(T* memory) {
    if (memory != nullptr) detail::Current<B>::get()->attached().release(memory);
  }
};

}  // namespace polypath::uniconn
