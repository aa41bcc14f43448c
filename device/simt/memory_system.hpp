// What the threads of a kernel find outside of it: global memory as their GPU addresses it, and
// time. The caller that starts the kernel supplies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "simt/host.hpp"

namespace polypath::simt {

/// Thrown into the thread that did it: an access to memory that its GPU may not make, a barrier
/// that cannot be met. It ends the grid.
struct Fault {
  std::string what;
};

class MemorySystem {
 public:
  virtual ~MemorySystem() = default;

  /// The bytes at an address of the GPU. Throws Fault where it may not use them so.
  virtual std::byte* at(std::uintptr_t address, std::size_t bytes, bool writes) = 0;
  /// True for memory of the GPU itself: what fence_gpu() orders.
  virtual bool is_local(std::uintptr_t address) = 0;
  /// The global timer.
  [[nodiscard]] virtual std::uint64_t now_ns() = 0;

  // Only for a machine whose memory takes time (Machine::Options::is_timed). `then` is
  // called from outside of all threads, once.

  /// Calls `then` when all parts have been fetched. False when that takes no time: no call then.
  /// `acquires`: by loads that order what follows them.
  virtual bool fetch(const detail::LoadPart* parts, std::size_t count, bool acquires,
                     std::function<void()> then) = 0;
  /// Calls `arrived` when what a thread of `block` stores there has arrived; false as above.
  /// `busy_ns`: how long the thread is busy with storing.
  virtual bool send(unsigned block, std::uintptr_t address, std::size_t bytes, double& busy_ns,
                    std::function<void()> arrived) = 0;
  virtual void wait(double ns, std::function<void()> then) = 0;
  /// How long a fence of system scope takes after all that it orders has arrived.
  [[nodiscard]] virtual double fence_ns() = 0;
};

}  // namespace polypath::simt
