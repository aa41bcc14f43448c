// std::shared_ptr without atomic counts and without malloc, for what comes and goes by the million
// in a machine, which one thread of the program uses at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "simt/recycled.hpp"

namespace polypath::simt {

/// A pointer to an object that lives until no such pointer holds it. `T` has a member
/// `std::size_t holders = 0`.
template <typename T>
class Held {
 public:
  Held() noexcept = default;
  template <typename... Arguments>
  static Held make(Arguments&&... arguments) {
    T* const object = Recycled<T>{}.allocate(1);
    Held held;
    held.object_ = std::construct_at(object, std::forward<Arguments>(arguments)...);
    ++object->holders;
    return held;
  }
  Held(const Held& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) ++object_->holders;
  }
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Held& operator=(Held other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() {
    if (object_ == nullptr || --object_->holders > 0) return;
    std::destroy_at(object_);
    Recycled<T>{}.deallocate(object_, 1);
  }

  void reset() noexcept { *this = {}; }
  [[nodiscard]] T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Held&, const Held&) noexcept = default;

 private:
  T* object_ = nullptr;
};

}  // namespace polypath::simt
