// The loader: its own dlsym(), what it has mapped, and which of that defines a name.
#pragma once

#include <link.h>

#include <cstddef>
#include <type_traits>

namespace polypath::gate {

using Dlsym = void* (*)(void* handle, const char* name);

/// The loader's own dlsym(), past every library that replaces it. Any thread.
Dlsym real_dlsym() noexcept;

/// The object that holds the address; null when there is none.
const link_map* object_of(const void* address) noexcept;

/// Whether the object is one of this project's libraries: those call the driver past the shim, also
/// in a program that uses polypath itself.
bool is_polypath(const link_map* object) noexcept;

/// Whether dlsym() without a version would find `name` in this object alone.
bool defines(const link_map& object, const char* name) noexcept;

/// One mapped object. It stays as long as any_loaded_object() is under way.
class LoadedObject {
 public:
  explicit LoadedObject(const dl_phdr_info& info) noexcept : info_(info) {}

  /// Not the program itself.
  [[nodiscard]] bool is_library() const noexcept;
  [[nodiscard]] bool holds(const void* address) const noexcept;
  /// Whether it names the other one among what it needs.
  [[nodiscard]] bool needs(const LoadedObject& other) const noexcept;
  [[nodiscard]] bool is(const LoadedObject& other) const noexcept {
    return info_.dlpi_phdr == other.info_.dlpi_phdr;
  }
  /// Calls `accepts(name)` for the names of other objects' functions and data that this one is
  /// bound to, with repetitions, until one is not accepted: then it is false.
  template <typename Accepts>
  [[nodiscard]] bool all_references(Accepts&& accepts) const noexcept {
    return all_references(
        [](const char* name, void* user) {
          return (*static_cast<std::remove_reference_t<Accepts>*>(user))(name);
        },
        &accepts);
  }

 private:
  [[nodiscard]] const ElfW(Dyn) * dynamic() const noexcept;
  [[nodiscard]] bool all_references(bool (*accepts)(const char* name, void* user),
                                    void* user) const noexcept;

  dl_phdr_info info_;
};

/// Calls `visit(object)` for all mapped objects until it is true, which is the result. May be
/// called by what it calls; meanwhile nothing is unmapped.
template <typename Visit>
bool any_loaded_object(Visit&& visit) noexcept {
  return dl_iterate_phdr(
             [](dl_phdr_info* info, std::size_t, void* user) {
               return (*static_cast<std::remove_reference_t<Visit>*>(user))(LoadedObject(*info))
                          ? 1
                          : 0;
             },
             &visit) != 0;
}

/// The objects that the process was started with, in the order in which names are looked up: the
/// program, what is preloaded, what they need. They are never unloaded. What initialisers of some
/// of them have opened may follow; anything later does not.
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

}  // namespace polypath::gate
