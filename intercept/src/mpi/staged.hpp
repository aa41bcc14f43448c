// Host memory in the place of one argument of a call, where bytes of that lie in device memory and
// the MPI library takes none. The argument may be MPI_BOTTOM, of several allocations and of memory
// of the host as well. Only bytes that belong to its datatype are read and written, each where its
// address says.
#pragma once

#include <optional>

#include "mpi/call.hpp"
#include "mpi/type_map.hpp"

namespace polypath::preload::mpi {

class Staged {
 public:
  enum class Layout : std::uint8_t {
    as_given,
    packed_where_gaps,  ///< as elements of their size, where elements in a row have gaps
  };
  /// `count` elements of `type` at `buffer`; 0: the argument is none.
  Staged(const void* buffer, std::int64_t count, Handle type, Layout layout) noexcept;
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  [[nodiscard]] bool is_needed() const noexcept { return is_needed_; }
  /// False: there is no memory.
  [[nodiscard]] bool is_there() const noexcept { return !is_needed_ || memory_ != nullptr; }
  /// Copies the argument into the host memory; not `is_read`: where all of that comes back, alone.
  [[nodiscard]] bool load(bool is_read = true) noexcept {
    return !is_needed_ || (!is_read && map_->is_exact()) || copy(true);
  }
  [[nodiscard]] bool store() noexcept { return !is_needed_ || copy(false); }

  // What to pass to MPI.
  [[nodiscard]] void* address() const noexcept;
  [[nodiscard]] Handle type() const noexcept { return is_packed_ ? packed_ : type_; }

 private:
  /// Calls see(run) for the runs of all elements until it is false; whether it never was.
  template <typename See>
  bool each_run(See&& see) const noexcept;
  /// Whether device memory may be in the argument, by the bounds of its type alone.
  [[nodiscard]] bool may_be_on_device() const noexcept;
  [[nodiscard]] bool find_ends() noexcept;
  [[nodiscard]] bool make_packed_type() noexcept;
  bool copy(bool is_load) noexcept;

  std::uintptr_t buffer_;
  std::int64_t count_;
  Handle type_;
  std::optional<TypeMap> map_;  ///< none: it is not needed
  bool is_needed_ = false;
  bool is_packed_ = false;
  Handle packed_ = 0;      ///< the type of one packed element
  std::intptr_t low_ = 0;  ///< from `buffer_`: what the host memory begins with, where not packed
  std::size_t bytes_ = 0;  ///< of the host memory
  char* memory_ = nullptr;
};

/// The sizes of a communicator.
struct Sizes {
  int rank;
  int size;
  int remote_size;  ///< as in Ranks
};

/// Calls MPI's own function. Device memory is replaced by host memory where the library does not
/// take it: this is correct with any buffers of the other ranks.
int call_mpi(const Call& call, const Sizes& sizes) noexcept;

}  // namespace polypath::preload::mpi
