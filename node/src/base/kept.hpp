// Objects that are never destroyed: something may use them for as long as the process lives.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace polypath {

/// A base of `T`. Kept objects stay reachable, so that a leak check does not report them.
template <typename T>
class Keepable {
 public:
  /// Never destroys the object. Any thread; allocates nothing.
  static void keep(std::unique_ptr<T> object) noexcept {
    static constinit std::atomic<Keepable*> kept{nullptr};
    Keepable* const raw = object.release();
    raw->next_kept_ = kept.exchange(raw);
  }

 protected:
  Keepable() = default;
  ~Keepable() = default;

 private:
  Keepable* next_kept_ = nullptr;
};

}  // namespace polypath
