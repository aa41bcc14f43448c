// What the loader has mapped, and which of it defines a name.
#pragma once

#include <link.h>

namespace polypath::preload {

/// The object that holds the address; null when there is none.
const link_map* object_of(const void* address) noexcept;

/// Whether the object is one of this project's libraries: those call the driver past the shim, also
/// in a program that uses polypath itself.
bool is_polypath(const link_map* object) noexcept;

/// Whether dlsym() without a version would find `name` in this object alone.
bool defines(const link_map& object, const char* name) noexcept;

/// The objects that the process was started with, in the order in which names are looked up: the
/// program, what is preloaded, what they need. They stay for good. What the initialisers of some of
/// them have opened may follow; anything later does not.
class StartupObjects {
 public:
  class Iterator {
   public:
    explicit Iterator(const link_map* at) noexcept : at_(at) {}
    const link_map* operator*() const noexcept { return at_; }
    Iterator& operator++() noexcept;
    bool operator!=(const Iterator& other) const noexcept { return at_ != other.at_; }

   private:
    const link_map* at_;
  };

  [[nodiscard]] Iterator begin() const noexcept;
  [[nodiscard]] Iterator end() const noexcept { return Iterator(nullptr); }
};

}  // namespace polypath::preload
