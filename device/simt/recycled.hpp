// Memory for small objects that come and go by the million: a thread keeps what it gives back.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace polypath::simt {

/// An allocator of single objects: each thread has a list of free ones of
/// that type, with no lock. What one thread has allocated another one may give back, to its own.
template <typename T>
struct Recycled {
  using value_type = T;

  Recycled() = default;
  template <typename Other>
  Recycled(const Recycled<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    if (count == 1 && list != nullptr && !list->empty()) {
      T* const object = list->back();
      list->pop_back();
      return object;
    }
    return std::allocator<T>{}.allocate(count);
  }

  void deallocate(T* object, std::size_t count) {
    if (count != 1 || !keep(object)) std::allocator<T>{}.deallocate(object, count);
  }

  friend bool operator==(const Recycled&, const Recycled&) noexcept { return true; }

 private:
  static constexpr std::size_t kMaxKept = 8192;

  struct List {
    std::vector<T*> free;
    List() {
      free.reserve(kMaxKept);
      list = &free;
    }
    ~List() {
      list = nullptr;
      has_ended = true;  // objects may outlive it, in the thread or the program
      for (T* const object : free) std::allocator<T>{}.deallocate(object, 1);
    }
  };

  static bool keep(T* object) {
    if (list == nullptr && !has_ended) {
      static thread_local List thread_list;
      list = &thread_list.free;
    }
    if (list == nullptr || list->size() == kMaxKept) return false;
    list->push_back(object);  // there is room
    return true;
  }

  static inline thread_local std::vector<T*>* list = nullptr;
  static inline thread_local bool has_ended = false;
};

}  // namespace polypath::simt
