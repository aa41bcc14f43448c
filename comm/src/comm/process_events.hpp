// What happens to the whole process, told to all communicators in it: a GPU that the program
// resets, and the process's end. Nothing waits for other ranks then.
#pragma once

#include <chrono>

namespace polypath {

/// Something that owns threads or memory of a GPU.
class ProcessEvents {
 public:
  /// GPU `gpu`, as the driver numbers them, is going to be reset. Its context is still there.
  virtual void gpu_is_reset(int gpu) noexcept = 0;
  /// Then: waits until kernels of other ranks write into its memory no more, until `deadline` at
  /// most. For ranks that begin nothing more that takes them microseconds.
  virtual void wait_for_others(int gpu,
                               std::chrono::steady_clock::time_point deadline) noexcept = 0;
  /// The process ends normally.
  virtual void process_ends() noexcept = 0;

  /// `events` is told from now on, by any thread; not in processes that are forked. Throws
  /// std::bad_alloc.
  static void add(ProcessEvents& events);
  /// It is not told any more, once this returns.
  static void remove(ProcessEvents& events) noexcept;

 protected:
  ~ProcessEvents() = default;
};

/// The program is going to reset the GPU: notifies all that have something there, and stops what
/// still frees memory of it in the background. Waits a second at most.
void announce_reset(int gpu) noexcept;

}  // namespace polypath
