// The context that the interceptors of a process share (offload.h).
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <list>
#include <mutex>
#include <new>

#include "core/c_boundary.hpp"
#include "polypath/offload.h"

using namespace polypath;

namespace {

struct SharedContext {
  polypath_context context{OptionArguments{}};
  int users = 0;
};

struct SharedContexts {
  std::mutex mutex;  ///< held while a context is made
  std::list<SharedContext> all;
  SharedContext* current = nullptr;  ///< of `all`; the others are retired

  /// Takes out the retired contexts without users. The caller destroys them without the lock.
  std::list<SharedContext> take_unused() {
    std::list<SharedContext> unused;
    for (auto entry = all.begin(); entry != all.end();) {
      const auto next = std::next(entry);
      if (entry->users == 0 && &*entry != current) unused.splice(unused.end(), all, entry);
      entry = next;
    }
    return unused;
  }
};

/// Never destroyed: threads may come here when the process ends. A child of a fork has none of its
/// parent's threads, one of which may have had the lock, so it gets new ones, without allocation.
SharedContexts& contexts = *[] {
  alignas(SharedContexts) static std::array<std::byte, sizeof(SharedContexts)> storage;
  static const auto renew = [] { return new (storage.data()) SharedContexts; };
  pthread_atfork(nullptr, nullptr, [] { renew(); });
  return renew();
}();

}  // namespace

polypath_status polypath_offload_acquire_context(polypath_context** context) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    const std::lock_guard lock(contexts.mutex);
    if (contexts.current == nullptr) contexts.current = &contexts.all.emplace_back();
    ++contexts.current->users;
    *context = &contexts.current->context;
  });
}

void polypath_offload_release_context(polypath_context* context) {
  std::list<SharedContext> unused;
  const std::lock_guard lock(contexts.mutex);
  const auto known = std::ranges::find_if(
      contexts.all, [&](const SharedContext& entry) { return &entry.context == context; });
  if (known == contexts.all.end()) return;
  --known->users;
  unused = contexts.take_unused();
}

void polypath_offload_retire_context(void) {
  std::list<SharedContext> unused;
  const std::lock_guard lock(contexts.mutex);
  contexts.current = nullptr;
  unused = contexts.take_unused();
}
