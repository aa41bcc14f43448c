// A child of fork() whose parent was making or ending a context at that moment.
#pragma once

namespace polypath {

/// Lives while a thread makes or ends a context, and so has locks: those of first calls, of the
/// environment, of the driver. A child that is forked meanwhile has the locks and not the thread.
/// It would never get them, so it is told.
class ContextChange {
 public:
  ContextChange() noexcept;
  ~ContextChange();
  ContextChange(const ContextChange&) = delete;
  ContextChange& operator=(const ContextChange&) = delete;

  /// Throws Error in such a child. Called before a context is made.
  static void require_none_at_fork();
};

}  // namespace polypath
